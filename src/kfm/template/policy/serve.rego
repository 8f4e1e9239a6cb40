# May this reader have this file?
package kfm.serve

import data.kfm.labels # for values; functions are called by their full names, which every engine finds

default allow := false

allow if {
	input.action == "read"
	input.asset.zone in zones
	input.withdrawn == false
	count(deny) == 0
}

zones := {"processed", "catalog"}

needed := labels.needed | {"asset.path", "withdrawn"}

sound contains field if some field in labels.sound

sound contains "asset.path" if data.kfm.labels.words(input.asset.path)

sound contains "withdrawn" if is_boolean(input.withdrawn)

reading if input.action == "read"

in_zone if input.asset.zone in zones

needs_grant if "grant" in labels.owed

# A grant is given to somebody, for a purpose, by a steward, for a time.
granted if {
	data.kfm.labels.words(input.reader.name)
	is_array(input.reader.grants)
	some grant in input.reader.grants
	grant.dataset == input.dataset.id
	data.kfm.labels.words(grant.purpose)
	data.kfm.labels.words(grant.steward)
	grant.expired == false
}

deny contains data.kfm.labels.asked("read") if not reading

deny contains data.kfm.labels.malformed(field) if some field in (needed - sound)

deny contains denial if some denial in labels.denials

# No transform discharges `grant`: on reading only a grant does.
deny contains data.kfm.labels.obligation(name) if some name in (labels.undischarged - {"grant"})

deny contains {
	"code": "grant.missing",
	"message": "The dataset needs a grant that names dataset, purpose and steward and has not expired.",
	"remedy": sprintf("Ask the steward for one; `kfm explain deny %s` says what was found.", [labels.id]),
} if {
	needs_grant
	not granted
}

deny contains {
	"code": "serve.zone",
	"message": "Only files of the zones processed and catalog are handed out.",
	"remedy": sprintf("Ask for a published file; `kfm explain deny %s` says what was asked for.", [labels.id]),
} if {
	not in_zone
}

deny contains {
	"code": "serve.withdrawn",
	"message": "The version has been withdrawn.",
	"remedy": sprintf("`kfm explain deny %s` names the authority and the date.", [labels.id]),
} if {
	input.withdrawn == true
}
