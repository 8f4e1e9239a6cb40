"""The gates every version passes before it may be official.

Door: `mandatory.GATES`, asked by `judge/` through `model.verdict.judge_all`. Each gate looks at one
thing in the evidence it is handed and names every reason with a remedy; what nobody looked at
denies. A gate is a pure function: it opens no file, asks no store and knows no other room.
"""
