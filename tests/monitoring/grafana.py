#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a dashboard into Grafana's own classes, which are made from its schema, and writes it again. Fields that the
schema does not have are lost thereby and are reported.

usage: grafana.py DASHBOARD.json    Needs what requirements.txt names. Status 1: something was lost or changed."""
import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(before, after, path=""):
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield f"{path}/{key} is not in Grafana's schema"
            else:
                yield from differences(value, after[key], f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (x, y) in enumerate(zip(before, after)):
            yield from differences(x, y, f"{path}/{i}")
    elif before != after:
        yield f"{path} is {before!r}, and Grafana's classes make {after!r} of it"


register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    board = json.load(file)
found = list(differences(board, json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))))
print(*found, sep="\n")
sys.exit(1 if found else 0)
