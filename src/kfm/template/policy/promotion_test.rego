package kfm.promotion_test

good := {
	"action": "promote",
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
	"candidate": {
		"version_id": "v1",
		"base_generation": 0,
		"artifacts": [],
		"columns": ["tree_id", "species"],
		"withhold": [],
		"h3_resolution": null,
		"spatial": false,
		"records": ["dcat", "prov"],
	},
	"gates": {
		"schema": "pass",
		"integrity": "pass",
		"quality": "pass",
		"licence": "pass",
		"labels": "pass",
		"books": "pass",
		"leak": "pass",
		"graph": "pass",
	},
	"approvals": {"needed": 0, "valid": 0},
	"attestation": {"verified": true},
}

allowed(change) if {
	document := object.union(good, change)
	data.kfm.promotion.allow with input as document
}

codes(change) := found if {
	document := object.union(good, change)
	denials := data.kfm.promotion.deny with input as document
	found := {denial.code | some denial in denials}
}

refused(change, code) if {
	not allowed(change)
	codes(change) == {code}
}

test_a_sound_candidate_is_allowed if {
	allowed({})
	codes({}) == set()
}

test_an_empty_question_is_denied if {
	not data.kfm.promotion.allow with input as {}
}

test_a_licence_is_needed if {
	refused({"dataset": {"licence": null}}, "licence.missing")
	refused({"dataset": {"licence": " "}}, "licence.missing")
}

test_a_licence_that_asserts_nothing_is_none if {
	every licence in ["NOASSERTION", "NONE", "noassertion", "MIT AND NOASSERTION"] {
		refused({"dataset": {"licence": licence}}, "licence.noassertion")
	}
	allowed({"dataset": {"licence": "LicenseRef-None-but-attribution"}})
}

test_labels_are_needed_and_known if {
	refused({"dataset": {"sensitivity": null}}, "labels.sensitivity")
	refused({"dataset": {"sensitivity": "secret"}}, "labels.unknown")
	refused({"dataset": {"policy_label": null}}, "labels.policy")
}

test_each_open_obligation_is_named if {
	refused({"dataset": {"sensitivity": "aggregate-only"}}, "labels.obligation")
	refused({"dataset": {"obligations": ["consent"]}}, "labels.obligation")
	document := object.union(good, {"dataset": {"sensitivity": "restricted", "discharged": ["aggregate"]}})
	denials := data.kfm.promotion.deny with input as document
	count(denials) == 2
}

test_discharged_obligations_are_settled if {
	allowed({"dataset": {"sensitivity": "restricted", "discharged": ["aggregate", "generalise", "grant"]}})
}

test_a_gate_that_denies_or_is_missing_counts if {
	refused({"gates": {"leak": "deny"}}, "gates.denied")
	refused({"gates": {"leak": "perhaps"}}, "gates.denied")
	refused({"gates": {"my_own": "deny"}}, "gates.denied")
	unjudged := object.union(object.remove(good, ["gates"]), {"gates": object.remove(good.gates, ["graph"])})
	denials := data.kfm.promotion.deny with input as unjudged
	{denial.code | some denial in denials} == {"gates.missing"}
}

test_needing_a_person_is_not_a_denial if {
	allowed({"gates": {"quality": "review"}, "approvals": {"needed": 1, "valid": 0}})
}

test_an_attestation_is_needed if refused({"attestation": {"verified": false}}, "attestation.missing")

test_a_retired_dataset_stays_as_it_is if refused({"dataset": {"retired": true}}, "registry.retired")

test_records_are_needed if {
	refused({"candidate": {"records": ["dcat"]}}, "catalog.missing")
	refused({"candidate": {"spatial": true}}, "catalog.missing")
	allowed({"candidate": {"spatial": true, "records": ["dcat", "prov", "stac"]}})
}

test_a_withheld_column_is_not_released if refused({"candidate": {"withhold": ["species"]}}, "redaction.field")

test_sensitive_locations_need_a_resolution if {
	hidden := {"sensitivity": "sensitive-location", "discharged": ["generalise"]}
	refused({"dataset": hidden}, "redaction.resolution_missing")
	allowed({"dataset": hidden, "candidate": {"h3_resolution": 7}})
}

test_a_field_of_another_kind_is_named if refused({"candidate": {"columns": "species"}}, "input.shape")

test_another_action_is_not_judged_here if refused({"action": "read"}, "input.action")
