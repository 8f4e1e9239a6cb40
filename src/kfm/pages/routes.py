"""Pages on the addresses of the reader: which page is shown where, and for whom.

`kfm serve` shows what is published; `--console` adds the pages of who runs things, on this machine
or for whose token has a role for it, and what can be done there. An address that the reader answers
itself keeps its own JSON twin, and gets its page by name.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from kfm.console import boundary, requests, review, sign_in
from kfm.console import preview as previewing
from kfm.console import quarantine as quarantine_acts
from kfm.console.act import DONE, OPERATES
from kfm.console.live import Live
from kfm.pages import (
    about,
    addresses,
    backfill,
    dataset,
    datasets,
    decision,
    difference,
    focus,
    home,
    lineage,
    login,
    operate,
    preview,
    problem,
    proposal,
    quarantine,
    row,
    runs,
    search,
    slo,
    story,
    version,
)
from kfm.pages.card import draw
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.backfills import backfill_page, backfills_page
from kfm.pages.gather.card import card_of
from kfm.pages.gather.dataset import dataset_page
from kfm.pages.gather.datasets import datasets_page
from kfm.pages.gather.decision import decision_page
from kfm.pages.gather.difference import diff_page
from kfm.pages.gather.home import home_page, waiting_of
from kfm.pages.gather.login import login_page
from kfm.pages.gather.operate import (
    aside_page,
    policy_page,
    quarantine_page,
    queue_page,
    schedules_page,
    slo_page,
    webhooks_page,
)
from kfm.pages.gather.places import places
from kfm.pages.gather.preview import preview_page
from kfm.pages.gather.proposals import proposal_page, proposals_page
from kfm.pages.gather.quarantine import to_decide
from kfm.pages.gather.row import row_page
from kfm.pages.gather.runs import run_page, runs_page
from kfm.pages.gather.stories import about_page, focus_page, lineage_page, search_page, story_page
from kfm.pages.gather.version import version_page
from kfm.pages.layout import Frame, Page
from kfm.pages.query import query_of
from kfm.pages.static_files import static
from kfm.reader.door import Asking, Hidden, whole_number
from kfm.reader.html_pages import HtmlPages, Shown
from kfm.reader.kinds import FEATURES, GEOJSON, Answers
from kfm.reader.route import Problem, reads
from kfm.reader.versions import which_of
from kfm.reader.visit import Visit

__all__ = ["PUBLIC", "Kind", "html_pages", "parts_of"]

_THEME = re.compile(r"(?:^|; )kfm_theme=(light|dark)(?:;|$)")

_DATASET = re.compile(r"/datasets/([a-z][a-z0-9_]*)(?:/.*)?")

_SVG = "image/svg+xml"
Query = dict[str, str]


class Kind(NamedTuple):
    """A page: its name, its address, how it is filled and how it is written. A part of the address
    in braces is passed on in order.
    """

    name: str
    path: str
    gather: Callable[..., Page] | None  # None: of what the reader answers alone
    render: Callable[..., str]
    # the page of what the reader answers
    told: Callable[[Asks, Any], Page] | None = None


def _choice(asks: Asks, query: Query) -> datasets.DatasetsPage:
    known = datasets.Choice.__struct_fields__
    return datasets_page(asks, datasets.Choice(**{k: query.get(k, "") for k in known}))


def _runs(asks: Asks, query: Query) -> runs.RunsPage:
    return runs_page(asks, query.get("dataset", ""), query.get("noops") != "no")


def _proposal(asks: Asks, query: Query, number: str) -> proposal.ProposalPage:
    found = whole_number(number)
    if found is None:
        raise Hidden
    return proposal_page(asks, found)


PUBLIC = (
    Kind("datasets", "/datasets", _choice, datasets.render),
    Kind(
        "dataset",
        "/datasets/{dataset_id:str}",
        lambda asks, query, dataset_id: dataset_page(asks, dataset_id),
        dataset.render,
    ),
    Kind(
        "version",
        "/datasets/{dataset_id:str}/versions/{which:str}",
        lambda asks, query, dataset_id, which: version_page(asks, dataset_id, which),
        version.render,
    ),
    Kind(
        "diff",
        "/datasets/{dataset_id:str}/versions/{which:str}/diff",
        None,
        difference.render,
        diff_page,
    ),
    Kind(
        "story",
        "/datasets/{dataset_id:str}/versions/{which:str}/story",
        None,
        story.render,
        story_page,
    ),
    Kind(
        "focus",
        "/datasets/{dataset_id:str}/versions/{which:str}/ask",
        lambda asks, query, dataset_id, which: focus_page(asks.focus(dataset_id, which)),
        focus.render,
        lambda asks, found: focus_page(found),
    ),
    Kind(
        "focus_of",
        "/datasets/{dataset_id:str}/ask",
        lambda asks, query, dataset_id: focus_page(asks.focus(dataset_id, "latest")),
        focus.render,
        lambda asks, found: focus_page(found),
    ),
    Kind(
        "blame",
        "/datasets/{dataset_id:str}/versions/{which:str}/blame",
        None,
        row.render,
        row_page,
    ),
    Kind(
        "lineage",
        "/datasets/{dataset_id:str}/versions/{which:str}/lineage",
        lambda asks, query, dataset_id, which: lineage_page(asks, which_of(dataset_id, which)),
        lineage.render,
    ),
    Kind(
        "lineage_of",
        "/lineage/{what:str}",
        lambda asks, query, what: lineage_page(asks, what),
        lineage.render,
    ),
    Kind(
        "search",
        "/search",
        lambda asks, query: search_page(asks, query.get("q", "")[:500]),
        search.render,
    ),
    Kind("about", "/about", lambda asks, query: about_page(asks), about.render),
    Kind("login", "/login", lambda asks, query: login_page(asks), login.render),
)
CONSOLE = (
    Kind("home", "/home", lambda asks, query: home_page(asks), home.render),
    Kind(
        "decision",
        "/decisions/{dataset_id:str}",
        lambda asks, query, dataset_id: decision_page(asks, dataset_id),
        decision.render,
    ),
    Kind("runs", "/runs", _runs, runs.render_runs),
    Kind(
        "run",
        "/runs/{run_id:str}",
        lambda asks, query, run: run_page(asks, run, query),
        runs.render_run,
    ),
    Kind(
        "proposals",
        "/proposals",
        lambda asks, query: proposals_page(asks),
        proposal.render_all,
    ),
    Kind("proposal", "/proposals/{number:str}", _proposal, proposal.render_one),
    Kind(
        "preview",
        "/proposals/{number:str}/preview",
        lambda asks, query, number: preview_page(asks, number),
        preview.render,
    ),
    Kind(
        "quarantine",
        "/quarantine",
        lambda asks, query: quarantine_page(asks),
        quarantine.render_quarantine,
    ),
    Kind(
        "aside",
        "/quarantine/{run_id:str}",
        lambda asks, query, run: aside_page(asks, run),
        quarantine.render_aside,
    ),
    Kind("backfills", "/backfills", lambda asks, query: backfills_page(asks), backfill.render_all),
    Kind(
        "backfill",
        "/backfills/{backfill_id:str}",
        lambda asks, query, backfill_id: backfill_page(asks, backfill_id, query),
        backfill.render_one,
    ),
    Kind("queue", "/queue", lambda asks, query: queue_page(asks), operate.render_queue),
    Kind(
        "schedules",
        "/schedules",
        lambda asks, query: schedules_page(asks),
        operate.render_schedules,
    ),
    Kind("policy", "/policy", lambda asks, query: policy_page(asks, query), operate.render_policy),
    Kind("webhooks", "/webhooks", lambda asks, query: webhooks_page(asks), operate.render_webhooks),
    Kind("slo", "/slo", lambda asks, query: slo_page(asks), slo.render_slo),
)


def html_pages(*, console: bool = False) -> HtmlPages:
    """The pages of a reader, and with `console` those of who runs things."""
    from kfm.reader.app import ROUTES

    kinds = (*PUBLIC, *CONSOLE) if console else PUBLIC
    answered = {_shape(path) for route in ROUTES for path in getattr(route, "paths", ())}
    own = [_route(kind, console) for kind in kinds if _shape(kind.path) not in answered]
    pages = {kind.name: _shown(kind, console) for kind in kinds}
    pages["home"] = _home(console)  # of `/`, which the reader answers
    pages["problem"] = lambda shown: _problem(shown, console)
    live = Live()
    routes: list[HTTPRouteHandler] = [*own, *sign_in.ROUTES, *_everybodys()]
    operating: list[HTTPRouteHandler] = []
    if console:
        routes += [
            route
            for room in (requests, boundary, review, quarantine_acts, previewing)
            for route in room.ROUTES
        ]
        routes.append(live.route())
        known = answered | {_shape(kind.path) for kind in PUBLIC}
        operating = [route for route in routes if not _is_public(route, known)]
    for route in operating:
        route.include_in_schema = False
    hidden = tuple(_pattern(path) for route in operating for path in route.paths)
    return HtmlPages(
        pages=pages, routes=routes, leave=live.close, hidden=hidden, hidden_but_for=OPERATES
    )


def _everybodys() -> tuple[HTTPRouteHandler, ...]:
    """What pages are made with, beside what they are made of."""
    return (_places, _card, _version_card, static)


def _home(console: bool) -> Callable[[Shown], str]:
    """The first page: how things are run, for who sees that; for everybody else what there is."""
    mine, everybodys = _shown(CONSOLE[0], console), _shown(PUBLIC[0], console)

    def page(shown: Shown) -> str:
        operator = console and shown.asking.viewer.may(OPERATES)
        return (mine if operator else everybodys)(shown)

    return page


def _is_public(route: HTTPRouteHandler, shown: set[str]) -> bool:
    """Whether everybody may know that there is such an address."""
    common = (*sign_in.ROUTES, *_everybodys())
    return route in common or all(_shape(path) in shown for path in route.paths)


def _pattern(path: str) -> re.Pattern[str]:
    """What fits an address, whatever its parts are."""
    return re.compile(re.sub(r"\{[^}]*\}", "[^/]+", re.sub(r"\{[^}]*:path\}", ".+", path)))


@reads(
    "/datasets/{dataset_id:str}/versions/{which:str}/places",
    media=GEOJSON,
    answers=Answers(kinds={GEOJSON: FEATURES}),
)
def _places(asking: Asking, dataset_id: FromPath[str], which: FromPath[str]) -> Response[bytes]:
    """What a map draws of a version."""
    found = places(Asks(asking), dataset_id, which)
    return Response(found, media_type=GEOJSON)


@reads("/datasets/{dataset_id:str}/card.svg", media=_SVG)
def _card(asking: Asking, dataset_id: FromPath[str]) -> Response[bytes]:
    """A picture of a dataset to share."""
    return Response(draw(card_of(Asks(asking), dataset_id, "latest")).encode(), media_type=_SVG)


@reads("/datasets/{dataset_id:str}/versions/{which:str}/card.svg", media=_SVG)
def _version_card(
    asking: Asking, dataset_id: FromPath[str], which: FromPath[str]
) -> Response[bytes]:
    """A picture of a version to share."""
    return Response(draw(card_of(Asks(asking), dataset_id, which)).encode(), media_type=_SVG)


def _shape(path: str) -> str:
    """An address whatever its parts are called."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def _route(kind: Kind, console: bool) -> HTTPRouteHandler:
    """An address of ours; what it answers is its JSON twin."""
    names = re.findall(r"\{(\w+):str\}", kind.path)

    def found(asking: Asking, **given: str) -> Page:
        assert kind.gather is not None  # nothing else answers there
        return kind.gather(_asks(asking, console, kind), query_of(), *(given[n] for n in names))

    found.__doc__ = kind.name
    found.__annotations__ = {
        "asking": Asking,
        **dict.fromkeys(names, FromPath[str]),
        "return": Page,
    }
    return reads(kind.path, page=kind.name)(_with_parameters(found, names))


def _with_parameters(found: Callable[..., Page], names: list[str]) -> Callable[..., Page]:
    """The same, with its parameters by name, as routes are read."""
    from inspect import Parameter, Signature

    kinds = [Parameter("asking", Parameter.KEYWORD_ONLY, annotation=Asking)]
    kinds += [Parameter(name, Parameter.KEYWORD_ONLY, annotation=FromPath[str]) for name in names]
    vars(found)["__signature__"] = Signature(kinds, return_annotation=Page)
    return found


def _shown(kind: Kind, console: bool) -> Callable[[Shown], str]:
    def page(shown: Shown) -> str:
        found = shown.found
        if kind.told is not None:
            found = kind.told(_asks(shown.asking, console, kind), found)
        if kind.gather is not None and not isinstance(found, Page):  # the page says more
            asks = _asks(shown.asking, console, kind)
            found = kind.gather(asks, query_of(), *parts_of(kind.path, shown.path))
        return kind.render(found, _frame(shown.asking, console))

    return page


def parts_of(template: str, path: str) -> list[str]:
    """What stands in an address where its template has braces."""
    pairs = zip(template.split("/"), path.split("/"), strict=False)
    return [text for name, text in pairs if name.startswith("{")]


def _asks(asking: Asking, console: bool, kind: Kind) -> Asks:
    operator = console and asking.viewer.may(OPERATES)
    if kind in CONSOLE and not operator:
        raise Hidden
    return Asks(asking, operator=operator)


def _frame(asking: Asking, console: bool) -> Frame:
    operator = console and asking.viewer.may(OPERATES)
    return msgspec.structs.replace(
        _bare_frame(asking, operator),
        role=asking.viewer.role,
        csrf=Visit.now().csrf,
        done=DONE.get(query_of().get("done", ""), ""),
        waiting=waiting_of(Asks(asking)) if operator else 0,
        set_aside=len(to_decide(Asks(asking))) if operator else 0,
    )


def _bare_frame(asking: Asking, operator: bool) -> Frame:
    """The frame of a page that asks nothing of the workspace, which may be what is wrong."""
    theme = _THEME.search(Visit.now().headers.get(b"cookie", ""))
    who = asking.viewer.reader.name or ("On this machine" if operator else "Sign in")
    return Frame(console=operator, who=who, theme=theme[1] if theme else None)


def _problem(shown: Shown, console: bool) -> str:
    found = shown.found
    assert isinstance(found, Problem)  # what this page is called for
    number = Visit.now().request_id if found.status >= 500 else ""
    viewer, claim = shown.asking.viewer, shown.asking.claim
    here = claim.here and claim.authorization is None and not claim.session
    operator = console and (viewer.may(OPERATES) or here)
    asked = _DATASET.fullmatch(shown.path) if operator and found.status in (404, 451) else None
    see = addresses.decision(asked[1]) if asked else ""
    page = problem.problem_page(
        found.status,
        found.said,
        shown.path,
        number,
        see,
        expected=found.expected,
        remedy=found.remedy,
    )
    return problem.render(page, _bare_frame(shown.asking, operator))
