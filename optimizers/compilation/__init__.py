"""Compile networks with torch.compile so that a user can live with it.

``settings`` is what a user decides, ``policy`` the technique without a host. A ``compiler`` makes what runs: functions
(``compiled``) that count graphs and recompilations, report progress, can be cancelled, and go on uncompiled where
compiling fails. ``cache_folder`` keeps compiled code on disk from one start to the next.
"""
