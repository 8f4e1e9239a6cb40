"""Commands and jobs that hand out what is official."""

# Commands that show or copy what is official, or proposed, to whoever calls them.
HANDS_OUT = {
    "get",
    "history",
    "lineage",
    "show",
    "bundle",
    "diff",
    "cite",
    "search",
    "story",
    "ask",
    "blame",
    "rebuild",
    "promote",
    "canary",
    "dataset",
    "withdraw",
    "export",
    "github",
    "serve",
}


HANDING_JOBS = {"transform.build_tiles", "index.build_embeddings", "notify"}
