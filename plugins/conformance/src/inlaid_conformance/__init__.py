"""The conformance suite: a vendor's check that a plugin fulfills the plugin contract.

    inlaid conformance --target acme --report acme.json
    pytest --pyargs inlaid_conformance --inlaid-target acme

Both commands run the same cases, level by level. A check is a function of a `TargetUnderTest` in a module of `levels`. `corpus` has
examples of every operator, and `nets` has small models. `suite` lists and runs the cases, some in new processes (`fresh`). `report`
writes the results. docs/conformance.md describes each check.
"""
