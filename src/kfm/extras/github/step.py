"""The step of a workflow that uploads artifacts, as an action in the repository itself.

GitHub gives the token that takes artifacts to actions alone, not to `run:` steps. This action hands it
to one command and no further; nothing is fetched from elsewhere.
"""

__all__ = ["FILES", "USES"]

USES = "./.github/actions/kfm-upload"

_ACTION = """\
name: kfm upload
description: Upload what runs of kfm left, also after a failure
inputs:
  datasets:
    description: ids of datasets, separated by blanks; none means all
    required: false
    default: ""
  kfm:
    description: the command
    required: false
    default: kfm
  workspace:
    description: the folder with kfm.yml
    required: false
    default: .
runs:
  using: node24
  main: index.js
"""

_INDEX = """\
// The token that takes artifacts goes to this one command and no further.
const { spawnSync } = require("node:child_process");

const given = (name) => (process.env[`INPUT_${name}`] || "").split(/\\s+/).filter(Boolean);
const [kfm, ...before] = given("KFM");
const words = [...before, "-w", ...given("WORKSPACE"), "github", "upload", ...given("DATASETS")];
const done = spawnSync(kfm, words, { stdio: "inherit" });
if (done.error) console.error(String(done.error));
process.exit(done.status ?? 1);
"""

# path in the repository -> content
FILES = {
    ".github/actions/kfm-upload/action.yml": _ACTION,
    ".github/actions/kfm-upload/index.js": _INDEX,
}
