# The same denials for `conftest test input.json -p policy`, which reads package main and wants `msg`.
package main

judged := {
	"promote": data.kfm.promotion,
	"read": data.kfm.serve,
	"redact": data.kfm.redaction,
}

known if judged[input.action]

deny contains object.union(denial, {"msg": denial.message}) if some denial in judged[input.action].deny

deny contains {
	"code": "input.action",
	"msg": "The action is none that is judged.",
	"message": "The action is none that is judged.",
	"remedy": "Ask with the action promote, read or redact.",
} if {
	not known
}

deny contains {
	"code": "policy.silent",
	"msg": "The rules do not allow it and give no reason.",
	"message": "The rules do not allow it and give no reason.",
	"remedy": "Give the rule that withholds `allow` a denial of its own; `kfm policy test` runs its tests.",
} if {
	judged[input.action].allow != true
	count(judged[input.action].deny) == 0
}
