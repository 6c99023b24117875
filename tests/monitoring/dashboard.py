#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the Grafana dashboard's structure, and that pvn-topo prints every metric that the dashboard and the alerts
name. Writes the dashboard's queries as rules, so that promtool can parse them.
usage: dashboard.py DASHBOARD RULES METRICS OUT"""
import json
import re
import sys

dashboard_file, rules_file, metrics_file, out_file = sys.argv[1:]
problems = []
with open(dashboard_file, encoding="utf-8") as f:
    board = json.load(f)
with open(rules_file, encoding="utf-8") as f:
    rules = f.read()
with open(metrics_file, encoding="utf-8") as f:
    printed = set(re.findall(r"^# TYPE (\S+)", f.read(), re.M))


def expect(what, good):
    if not good:
        problems.append(what)


for key, kind in {"title": str, "uid": str, "schemaVersion": int, "panels": list, "templating": dict, "time": dict,
                  "annotations": dict}.items():
    expect(f"{key} is missing or no {kind.__name__}", isinstance(board.get(key), kind))
expect("an id belongs to one Grafana and is no part of a file", "id" not in board)
variables = {v["name"] for v in board["templating"]["list"]}
queries, ids, taken = [], set(), {}
for v in board["templating"]["list"]:
    if v["type"] == "query":
        m = re.fullmatch(r"label_values\((.*), (\w+)\)", v["query"]["query"])
        expect(f"variable {v['name']}: {v['query']}", m)
        queries.append(m.group(1))
for panel in board["panels"]:
    name = panel.get("title", "?")
    expect(f"panel {name}: its id is used twice", panel["id"] not in ids)
    ids.add(panel["id"])
    expect(f"panel {name}: type {panel['type']}", panel["type"] in ("stat", "timeseries"))
    grid = panel["gridPos"]
    expect(f"panel {name}: reaches beyond the 24 columns", 0 <= grid["x"] and grid["x"] + grid["w"] <= 24 and grid["h"] > 0)
    for x in range(grid["x"], grid["x"] + grid["w"]):
        for y in range(grid["y"], grid["y"] + grid["h"]):
            expect(f"panel {name} lies over {taken.get((x, y))}", (x, y) not in taken)
            taken[x, y] = name
    expect(f"panel {name}: no query", panel["targets"])
    expect(f"panel {name}: refIds repeat", len({t["refId"] for t in panel["targets"]}) == len(panel["targets"]))
    for target in panel["targets"]:
        queries.append(target["expr"])
        expect(f"panel {name}: not the data source that is chosen", target["datasource"]["uid"] == "${datasource}")
for used in re.findall(r"\$\{?(\w+)", json.dumps(board)):
    expect(f"variable {used} is not defined", used in variables or used.startswith("__"))

named = set(re.findall(r"nccl_pvrdma_\w+", " ".join(queries) + rules))
expect("no metric is named", len(named) > 5)
for metric in sorted(named - printed):
    problems.append(f"{metric} is not among what pvn-topo --prom stat prints")
# node_exporter adds these metrics to each file.
for metric in sorted(set(re.findall(r"\bnode_textfile\w+", rules)) - {"node_textfile_mtime_seconds", "node_textfile_scrape_error"}):
    problems.append(f"{metric} is none of the textfile collector")

with open(out_file, "w", encoding="utf-8") as f:
    f.write("groups:\n  - name: dashboard\n    rules:\n")
    for i, query in enumerate(queries):
        query = query.replace("$__rate_interval", "5m").replace("$instance", ".*")
        f.write(f"      - record: query{i}\n        expr: {json.dumps(query)}\n")
print("\n".join(problems))
sys.exit(1 if problems else 0)
