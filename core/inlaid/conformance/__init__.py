"""The conformance suite, with which a vendor checks that a plugin fulfils the plugin contract.

    inlaid conformance --target acme --report acme.json
    pytest --pyargs inlaid.conformance --inlaid-target acme

Both run the same cases, level by level. A check is a function of a `TargetUnderTest` in a module of `levels`. `corpus` has examples
of every operator and `nets` small models; `suite` lists the cases and runs them, some in new processes (`fresh`); `report` writes
the results. docs/conformance.md describes each check.
"""
