"""Attention backends behind one signature: the calls that each supports, whether it runs here, and why not.

Start with ``registry``: ``backend_names()`` (cheap), ``require`` (a tested function or a reasoned error) and
``get(name).refusal(AttentionCall.of(q, k, v, mask))`` before each call.
"""
