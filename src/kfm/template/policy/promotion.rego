# May this candidate become official? Needing a person is the engine's question, not this one's.
package kfm.promotion

import data.kfm.labels # for values; functions are called by their full names, which every engine finds

default allow := false

allow if {
	input.action == "promote"
	input.attestation.verified == true
	every gate in required {
		input.gates[gate] in passing
	}
	count(deny) == 0
}

required := {"schema", "integrity", "quality", "licence", "labels", "books", "leak", "graph"}

passing := {"pass", "review"}

needed := labels.needed | {
	"dataset.retired",
	"candidate.version_id",
	"candidate.columns",
	"candidate.withhold",
	"candidate.h3_resolution",
	"candidate.spatial",
	"candidate.records",
}

sound contains field if some field in labels.sound

sound contains "dataset.retired" if is_boolean(input.dataset.retired)

sound contains "candidate.version_id" if data.kfm.labels.words(input.candidate.version_id)

sound contains "candidate.columns" if data.kfm.labels.texts(input.candidate.columns)

sound contains "candidate.withhold" if data.kfm.labels.texts(input.candidate.withhold)

sound contains "candidate.h3_resolution" if data.kfm.labels.resolution_or_none(input.candidate.h3_resolution)

sound contains "candidate.spatial" if is_boolean(input.candidate.spatial)

sound contains "candidate.records" if data.kfm.labels.texts(input.candidate.records)

promoting if input.action == "promote"

attested if input.attestation.verified == true

judged contains gate if {
	is_object(input.gates)
	some gate, _ in input.gates
}

passed contains gate if {
	some gate in judged
	input.gates[gate] in passing
}

records := {"dcat", "prov"} | {"stac" | input.candidate.spatial == true}

present contains record if {
	is_array(input.candidate.records)
	some record in input.candidate.records
}

generalised if data.kfm.labels.resolution(input.candidate.h3_resolution)

deny contains data.kfm.labels.asked("promote") if not promoting

deny contains data.kfm.labels.malformed(field) if some field in (needed - sound)

deny contains denial if some denial in labels.denials

deny contains data.kfm.labels.obligation(name) if some name in labels.undischarged

deny contains {
	"code": "registry.retired",
	"message": "The dataset is retired.",
	"remedy": sprintf("Take the mark out of the registry if it is to be updated again, then `kfm dataset check %s`.", [labels.id]),
} if {
	input.dataset.retired == true
}

deny contains {
	"code": "gates.missing",
	"message": sprintf("The gate %s has not judged the candidate.", [gate]),
	"remedy": sprintf("`kfm gates %s` shows every verdict.", [labels.id]),
} if {
	some gate in (required - judged)
}

# Whatever is not a pass or a question for a person counts as a no.
deny contains {
	"code": "gates.denied",
	"message": sprintf("The gate %s denies.", [gate]),
	"remedy": sprintf("`kfm gates %s` shows its reasons.", [labels.id]),
} if {
	some gate in (judged - passed)
}

deny contains {
	"code": "attestation.missing",
	"message": "The candidate carries no attestation that could be verified.",
	"remedy": "`kfm keys list` shows which keys are trusted.",
} if {
	not attested
}

deny contains {
	"code": "catalog.missing",
	"message": sprintf("The candidate has no %s record.", [record]),
	"remedy": sprintf("`kfm gates %s` shows what its catalogs lack.", [labels.id]),
} if {
	some record in (records - present)
}

deny contains data.kfm.labels.withheld(column) if {
	is_array(input.candidate.withhold)
	some column in input.candidate.withhold
	is_string(column)
	column in input.candidate.columns
}

deny contains labels.coarseness if {
	input.dataset.sensitivity == "sensitive-location"
	not generalised
}
