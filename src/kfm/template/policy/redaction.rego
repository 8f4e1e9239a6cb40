# Does what is released keep to what is registered to be hidden?
package kfm.redaction

import data.kfm.labels # for values; functions are called by their full names, which every engine finds

default allow := false

allow if {
	input.action == "redact"
	labels.known
	count(deny) == 0
}

needed := {"dataset.id", "columns", "withhold", "h3_resolution", "released_resolution"}

sound contains "dataset.id" if "dataset.id" in labels.sound

sound contains "columns" if data.kfm.labels.texts(input.columns)

sound contains "withhold" if data.kfm.labels.texts(input.withhold)

sound contains "h3_resolution" if data.kfm.labels.resolution_or_none(input.h3_resolution)

sound contains "released_resolution" if data.kfm.labels.resolution_or_none(input.released_resolution)

redacting if input.action == "redact"

registered if data.kfm.labels.resolution(input.h3_resolution)

coarse if {
	registered
	data.kfm.labels.resolution(input.released_resolution)
	input.released_resolution <= input.h3_resolution
}

# A resolution is at stake when the locations are sensitive, and whenever one is registered for a release that has places.
at_stake if input.dataset.sensitivity == "sensitive-location"

at_stake if input.released_resolution != null

deny contains data.kfm.labels.asked("redact") if not redacting

deny contains data.kfm.labels.malformed(field) if some field in (needed - sound)

deny contains denial if some denial in labels.sensitivity_denials

deny contains data.kfm.labels.withheld(column) if {
	is_array(input.withhold)
	some column in input.withhold
	is_string(column)
	column in input.columns
}

deny contains {
	"code": "redaction.resolution",
	"message": "The locations are released finer than the registered H3 resolution, or nobody knows how fine.",
	"remedy": sprintf("Release at the registered resolution or a coarser one, then `kfm explain deny %s`.", [labels.id]),
} if {
	at_stake
	registered
	not coarse
}

deny contains labels.coarseness if {
	input.dataset.sensitivity == "sensitive-location"
	not registered
}
