package kfm.serve_test

good := {
	"action": "read",
	"dataset": {
		"id": "city_trees",
		"title": "City trees",
		"licence": "CC-BY-4.0",
		"sensitivity": "public",
		"policy_label": "public",
		"care_label": null,
		"obligations": [],
		"discharged": [],
		"approvals": 0,
		"retired": false,
	},
	"reader": {"name": null, "roles": [], "grants": []},
	"asset": {"zone": "processed", "path": "city_trees/v1/city_trees.parquet"},
	"withdrawn": false,
}

grant := {"dataset": "city_trees", "purpose": "study of shade", "steward": "Parks", "expired": false}

restricted := {"sensitivity": "restricted", "discharged": ["aggregate", "generalise", "grant"]}

allowed(change) if {
	document := object.union(good, change)
	data.kfm.serve.allow with input as document
}

codes(change) := found if {
	document := object.union(good, change)
	denials := data.kfm.serve.deny with input as document
	found := {denial.code | some denial in denials}
}

refused(change, code) if {
	not allowed(change)
	codes(change) == {code}
}

given(change) := {"dataset": restricted, "reader": {"name": "Ada", "grants": [object.union(grant, change)]}}

test_public_files_are_for_everybody if {
	allowed({})
	allowed({"asset": {"zone": "catalog"}})
}

test_an_empty_question_is_denied if {
	not data.kfm.serve.allow with input as {}
}

test_raw_and_work_are_never_handed_out if {
	every zone in ["raw", "work", "quarantine", null] {
		refused({"asset": {"zone": zone}}, "serve.zone")
	}
}

test_what_was_withdrawn_is_gone if refused({"withdrawn": true}, "serve.withdrawn")

test_licence_and_labels_are_needed if {
	refused({"dataset": {"licence": null}}, "licence.missing")
	refused({"dataset": {"licence": "NONE"}}, "licence.noassertion")
	refused({"dataset": {"sensitivity": null}}, "labels.sensitivity")
	refused({"dataset": {"sensitivity": "secret"}}, "labels.unknown")
	refused({"dataset": {"policy_label": null}}, "labels.policy")
	refused({"dataset": {"sensitivity": "aggregate-only"}}, "labels.obligation")
}

test_restricted_data_needs_a_grant if {
	allowed(given({}))
	refused({"dataset": restricted}, "grant.missing")
}

test_a_grant_names_dataset_purpose_and_steward_and_has_not_expired if {
	every change in [{"dataset": "another"}, {"purpose": ""}, {"purpose": null}, {"steward": ""}, {"expired": true}, {"expired": null}] {
		refused(given(change), "grant.missing")
	}
}

test_a_grant_is_given_to_somebody if {
	refused(object.union(given({}), {"reader": {"name": null}}), "grant.missing")
}

test_a_field_of_another_kind_is_named if refused({"withdrawn": null}, "input.shape")

test_another_action_is_not_judged_here if refused({"action": "promote"}, "input.action")
