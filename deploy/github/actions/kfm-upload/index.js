// Rendered by `kfm runner render github`, sha256:b705c17eff924de9c9337b110c983d9a701b62470b88fe24fb76e2bb98b2072a.
// Change kfm.yml or the registry and render again; a file that was changed by hand is not replaced.
// The token that takes artifacts goes to this one command and no further.
const { spawnSync } = require("node:child_process");

const given = (name) => (process.env[`INPUT_${name}`] || "").split(/\s+/).filter(Boolean);
const [kfm, ...before] = given("KFM");
const words = [...before, "-w", ...given("WORKSPACE"), "github", "upload", ...given("DATASETS")];
const done = spawnSync(kfm, words, { stdio: "inherit" });
if (done.error) console.error(String(done.error));
process.exit(done.status ?? 1);
