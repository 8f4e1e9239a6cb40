# What is asked of every dataset: a licence, known labels, and each obligation discharged.
package kfm.labels

obligations := {
	"public": set(),
	"aggregate-only": {"aggregate"},
	"sensitive-location": {"generalise"},
	"restricted": {"aggregate", "generalise", "grant"},
}

# The id as it may stand in a command; anything else could be more than a name.
default id := "ID"

id := input.dataset.id if {
	is_string(input.dataset.id)
	regex.match(`^[a-z][a-z0-9_]*$`, input.dataset.id)
}

words(value) if {
	is_string(value)
	regex.match(`[^ \t\r\n]`, value)
}

texts(value) if {
	is_array(value)
	every item in value {
		is_string(item)
	}
}

resolution(value) if {
	is_number(value)
	value >= 0
	value <= 15
}

resolution_or_none(value) if value == null

resolution_or_none(value) if resolution(value)

# Fields of the dataset that every question has.
needed := {"dataset.id", "dataset.obligations", "dataset.discharged"}

sound contains "dataset.id" if words(input.dataset.id)

sound contains "dataset.obligations" if texts(input.dataset.obligations)

sound contains "dataset.discharged" if texts(input.dataset.discharged)

licensed if words(input.dataset.licence)

labelled if words(input.dataset.sensitivity)

policy_labelled if words(input.dataset.policy_label)

known if obligations[input.dataset.sensitivity]

owed contains duty if some duty in obligations[input.dataset.sensitivity]

owed contains duty if {
	is_array(input.dataset.obligations)
	some duty in input.dataset.obligations
	is_string(duty)
}

discharged contains duty if {
	is_array(input.dataset.discharged)
	some duty in input.dataset.discharged
}

undischarged := owed - discharged

licence_denials contains {
	"code": "licence.missing",
	"message": "No licence is registered.",
	"remedy": sprintf("`kfm licence ask %s` writes to the custodian; `kfm licence set %s SPDX --proof FILE` records the answer.", [id, id]),
} if {
	not licensed
}

# Alone or inside an expression: what nobody asserts gives no right.
licence_denials contains {
	"code": "licence.noassertion",
	"message": sprintf("The licence %s asserts no right to publish.", [input.dataset.licence]),
	"remedy": sprintf("`kfm licence ask %s` writes to the custodian; `kfm licence set %s SPDX --proof FILE` records the answer.", [id, id]),
} if {
	licensed
	regex.match(`(?i)(^|[^a-z0-9.-])(noassertion|none)($|[^a-z0-9.-])`, input.dataset.licence)
}

sensitivity_denials contains {
	"code": "labels.sensitivity",
	"message": "No sensitivity is registered.",
	"remedy": sprintf("Register one of public, restricted, sensitive-location or aggregate-only, then `kfm dataset check %s`.", [id]),
} if {
	not labelled
}

sensitivity_denials contains {
	"code": "labels.unknown",
	"message": sprintf("The sensitivity %s is not known.", [input.dataset.sensitivity]),
	"remedy": sprintf("Register one of public, restricted, sensitive-location or aggregate-only, then `kfm dataset check %s`.", [id]),
} if {
	labelled
	not known
}

policy_denials contains {
	"code": "labels.policy",
	"message": "No policy label is registered.",
	"remedy": sprintf("Register a policy label, then `kfm dataset check %s`.", [id]),
} if {
	not policy_labelled
}

denials := (licence_denials | sensitivity_denials) | policy_denials

obligation(name) := {
	"code": "labels.obligation",
	"message": sprintf("The obligation %s is not discharged.", [name]),
	"remedy": sprintf("Register a release that discharges it, then `kfm explain deny %s`.", [id]),
}

malformed(field) := {
	"code": "input.shape",
	"message": sprintf("The field %s is missing or not of its kind.", [field]),
	"remedy": sprintf("The question was not asked in full: `kfm explain deny %s` shows it.", [id]),
}

asked(action) := {
	"code": "input.action",
	"message": sprintf("The question is not about the action %s.", [action]),
	"remedy": "Ask the package that judges this action.",
}

withheld(column) := {
	"code": "redaction.field",
	"message": sprintf("The column %s is withheld, yet it is among those released.", [column]),
	"remedy": sprintf("Leave it out of the release, then `kfm explain deny %s`.", [id]),
}

coarseness := {
	"code": "redaction.resolution_missing",
	"message": "The locations are sensitive and no H3 resolution is registered.",
	"remedy": sprintf("Register the resolution of the release, then `kfm dataset check %s`.", [id]),
}
