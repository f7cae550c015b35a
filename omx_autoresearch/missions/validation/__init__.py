"""Validations: the runtime runs the validator, asks a reviewer, or checks criteria, and attests what it saw.

It runs commands and writes their outputs and attestations. Begin with ``runs`` (validators and reviewers),
then ``checks`` (criteria); ``asked`` is a run at somebody's word, ``output`` reads what a run printed.
"""
