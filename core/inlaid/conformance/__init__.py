"""The conformance suite: what a vendor runs to see that a plugin keeps its word.

    inlaid conformance --target acme --report acme.json
    pytest --pyargs inlaid.conformance --inlaid-target acme

Both run the same cases, level by level. A check is a function of a `TargetUnderTest`, the target that is looked at, in a module of
`levels`; `corpus` has examples of every operator and `nets` small models; `suite` lists the cases and runs them; `report` writes
what they found; `fresh` is what they run in processes of their own. docs/conformance.md says what each check asks.
"""
