package kfm.redaction_test

good := {
	"action": "redact",
	"dataset": {"id": "rare_birds", "sensitivity": "sensitive-location"},
	"columns": ["species", "cell"],
	"withhold": ["latitude", "longitude"],
	"h3_resolution": 7,
	"released_resolution": 7,
}

allowed(change) if {
	document := object.union(good, change)
	data.kfm.redaction.allow with input as document
}

codes(change) := found if {
	document := object.union(good, change)
	denials := data.kfm.redaction.deny with input as document
	found := {denial.code | some denial in denials}
}

refused(change, code) if {
	not allowed(change)
	codes(change) == {code}
}

test_a_release_that_keeps_to_its_registration_is_allowed if {
	allowed({})
	allowed({"released_resolution": 5})
	allowed({"dataset": {"sensitivity": "public"}, "h3_resolution": null, "released_resolution": null})
}

test_an_empty_question_is_denied if {
	not data.kfm.redaction.allow with input as {}
}

test_a_withheld_column_is_not_released if refused({"columns": ["species", "latitude"]}, "redaction.field")

test_finer_than_registered_is_denied if refused({"released_resolution": 8}, "redaction.resolution")

test_a_release_of_unknown_resolution_is_denied if refused({"released_resolution": null}, "redaction.resolution")

test_sensitive_locations_need_a_resolution if refused({"h3_resolution": null}, "redaction.resolution_missing")

test_the_sensitivity_is_known if {
	refused({"dataset": {"sensitivity": null}}, "labels.sensitivity")
	refused({"dataset": {"sensitivity": "secret"}}, "labels.unknown")
}

test_a_field_of_another_kind_is_named if refused({"withhold": null}, "input.shape")

test_another_action_is_not_judged_here if refused({"action": "read"}, "input.action")
