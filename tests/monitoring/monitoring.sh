#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 180
# Tests everything in plugin/packaging/monitoring with the real programs. systemd reads the units, promtool the rules and
# our metrics. node_exporter serves the file that the unit's command writes. A Prometheus that scrapes it fires the alert
# for a stopped rank.
# The programs are those of PATH, else of Debian's packages, which are fetched and unpacked once below the build
# directory. They are not installed, because the packages would start a server that the whole network can reach.
set -u
src=${PVN_SRCDIR:?} build=${PVN_BUILDDIR:?}
mon=$src/plugin/packaging/monitoring
work=$(mktemp -d)
pids=()
finish() {
    for p in "${pids[@]}"; do
        kill -CONT -- "$p" 2>/dev/null
        kill -TERM -- "$p" 2>/dev/null
    done
    wait 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
export NCCL_PVRDMA_STATS_DIR=$work/stats
topo=$build/topo/pvn-topo

result() { # NAME STATUS [LOG]
    if [[ $2 = 0 ]]; then
        echo "ok $1"
    else
        echo "not ok $1"
        [[ -n ${3:-} ]] && head -n 60 "$3"
    fi
}

if command -v systemd-analyze >/dev/null; then
    mkdir "$work/units"
    cp "$mon"/*.service "$mon"/*.timer "$work/units"
    systemd-analyze verify --man=no "$work"/units/* >"$work/log" 2>&1 && [[ ! -s $work/log ]]
    result "monitoring, systemd reads the units without a remark" $? "$work/log"
else
    echo "skip monitoring, units: systemd-analyze is not installed"
fi

cache=$build/prometheus
fetch() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    mkdir -p "$cache.new" && (
        cd "$cache.new" && timeout 100 apt-get -q -o APT::Sandbox::User="$(id -un)" download prometheus prometheus-node-exporter &&
            for d in *.deb; do dpkg-deb -x "$d" . || exit 1; done
        rm -f ./*.deb
    ) >"$work/fetch" 2>&1 && [[ -x $cache.new/usr/bin/promtool ]] && mv "$cache.new" "$cache"
}
have() { command -v promtool && command -v prometheus && command -v prometheus-node-exporter; }
PATH=$PATH:$cache/usr/bin
if ! have >/dev/null && ! { fetch && have >/dev/null; }; then
    rm -rf "$cache.new"
    echo "skip monitoring: neither installed nor to be had by apt-get download: prometheus, prometheus-node-exporter"
    exit 0
fi

rules=nccl-net-pvrdma.rules.yml
cp "$mon/$rules" "$src/tests/monitoring/nccl-net-pvrdma.rules.test.yml" "$work"
cd "$work" || exit 2
promtool check rules --lint-fatal $rules >log 2>&1
result "monitoring, promtool reads the rules" $? log
promtool test rules nccl-net-pvrdma.rules.test.yml >log 2>&1
result "monitoring, each alert fires when it should" $? log
sed -n 's/^ *- alert: //p' $rules | while read -r alert; do
    grep -q "{alertname=\"$alert\"}" nccl-net-pvrdma.rules.test.yml || echo "$alert is not tried"
done >log
[[ ! -s log ]] && grep -q 'alert: ' $rules
result "monitoring, each alert is tried" $? log

# Two ranks run, and the unit's own command writes their metrics.
setsid "$build/pvn-perf" p2p --bandwidth --plugin "$build/.libs/libnccl-net-pvrdma.so" --sizes 64K --time 150 --timeout 140 \
    --quiet >perf.log 2>&1 &
pids+=(-$!)
mkdir text bin
ln -s "$topo" bin/pvn-topo
command=$(sed -n "s/^ExecStart=.bin.sh -c '\(.*\)'\$/\1/p" "$mon/nccl-net-pvrdma-stat.service" | sed 's/\$\$/$/g')
write() { TEXTFILE_DIR=$work/text PATH=$work/bin:$PATH sh -c "$command"; }
rank_pids() { sed -n 's/^nccl_pvrdma_comms_up{pid="\([0-9]*\)".*/\1/p' text/nccl-net-pvrdma.prom | sort -u; }
for _ in $(seq 100); do
    write && [[ $(rank_pids | wc -l) = 2 ]] && break
    sleep 0.1
done
[[ -n $command && $(rank_pids | wc -l) = 2 && $(ls text) = nccl-net-pvrdma.prom && $(stat -c %a text/*) = 644 ]]
result "monitoring, the unit's command writes the metrics of both ranks" $? perf.log
# The page's commands run one after the other, with the files of the source tree and a systemctl that only starts the
# service.
page=$(sed -n '/^    cd PREFIX/,/^    cat /s/^    //p' "$mon/README.md" |
    sed "s,PREFIX/share/nccl-net-pvrdma/monitoring,$mon,; s,/etc/systemd/system,$work/etc,; s,/var/lib/prometheus/node-exporter,$work/text,")
mkdir etc
printf '#!/bin/sh\n[ "$*" != "start nccl-net-pvrdma-stat.service" ] || TEXTFILE_DIR=text exec sh -c "$COMMAND"\n' >bin/systemctl
chmod +x bin/systemctl
rm -f text/*
# The page's first line changes the directory, so the service's command changes back to find text/.
(cd "$work" && COMMAND="cd $work && $command" PATH=$work/bin:$PATH bash -e -c "$page") >log 2>&1 &&
    grep -q '^nccl_pvrdma_process_info' log && [[ $(ls etc | wc -l) = 2 ]]
result "monitoring, the page's commands end with the metrics" $? log
promtool check metrics <text/nccl-net-pvrdma.prom >log 2>&1 && [[ ! -s log ]]
result "monitoring, promtool has no remark on the metrics" $? log
"$topo" --prom --per-comm stat >all.prom 2>log && promtool check metrics <all.prom >log 2>&1 && [[ ! -s log ]]
result "monitoring, nor on those of each connection" $? log

python3 "$src/tests/monitoring/dashboard.py" "$mon/nccl-net-pvrdma.dashboard.json" "$mon/$rules" text/nccl-net-pvrdma.prom queries.yml >log 2>&1
result "monitoring, the dashboard is whole, and each metric of it and of the rules is printed" $? log
promtool check rules queries.yml >log 2>&1
result "monitoring, Prometheus parses each query of the dashboard" $? log
if grafana=$("$src/plugin/packaging/portable/venv.sh" "$src/tests/monitoring/requirements.txt" 2>log); then
    "$grafana" "$src/tests/monitoring/grafana.py" "$mon/nccl-net-pvrdma.dashboard.json" >log 2>&1
    result "monitoring, Grafana's own schema has all of the dashboard" $? log
    sed 's/"refresh"/"refrsh"/' "$mon/nccl-net-pvrdma.dashboard.json" >damaged.json
    ! "$grafana" "$src/tests/monitoring/grafana.py" damaged.json >log 2>&1 && grep -q 'refrsh is not in' log
    result "monitoring, it does not have what is misspelt" $? log
else
    echo "skip monitoring, Grafana's own schema: $(tail -n 1 log)"
fi

# The ports are free only when this program has ended, so the script waits for its end.
ports=$(python3 -c '
import socket
s = [socket.socket() for _ in range(2)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')
read -r port1 port2 <<<"$ports"
prometheus-node-exporter --collector.disable-defaults --collector.textfile --collector.textfile.directory="$work/text" \
    --web.listen-address="127.0.0.1:$port1" >exporter.log 2>&1 &
pids+=($!)
# The rules with "for" set to 1 s instead of minutes.
sed 's/for: .*/for: 1s/' "$mon/$rules" >fast.yml
cat >prometheus.yml <<YML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$work/fast.yml]
scrape_configs:
  - job_name: node
    static_configs: [{targets: ["127.0.0.1:$port1"]}]
YML
prometheus --config.file=prometheus.yml --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$port2" >prometheus.log 2>&1 &
pids+=($!)
firing() { # firing ALERT: prints the pids of the ranks for which the alert fires
    python3 - "http://127.0.0.1:$port2/api/v1/alerts" "$1" <<'PY'
import json, sys, urllib.request
try:
    alerts = json.load(urllib.request.urlopen(sys.argv[1], timeout=5))["data"]["alerts"]
except OSError:
    sys.exit(1)
print(*[a["labels"].get("pid", "-") for a in alerts if a["labels"]["alertname"] == sys.argv[2] and a["state"] == "firing"])
PY
}
known() { # prints how many series of ranks Prometheus has
    python3 - "http://127.0.0.1:$port2/api/v1/query?query=nccl_pvrdma_process_stopped" <<'PY'
import json, sys, urllib.request
try:
    print(len(json.load(urllib.request.urlopen(sys.argv[1], timeout=5))["data"]["result"]))
except OSError:
    print(0)
PY
}
for _ in $(seq 80); do
    [[ $(known) = 2 ]] && break
    sleep 0.25
done
[[ $(known) = 2 && -z $(firing NcclRankStopped) ]]
result "monitoring, Prometheus has both ranks by node_exporter, and no alert" $? <(tail -n 30 exporter.log prometheus.log)
victim=$(rank_pids | tail -1)
kill -STOP "$victim"
for _ in $(seq 80); do
    write
    [[ -n $(firing NcclRankStopped) ]] && break
    sleep 0.25
done
[[ $(firing NcclRankStopped) = "$victim" ]]
result "monitoring, a stopped rank fires its alert, and no other rank does" $? prometheus.log
kill -CONT "$victim"
for _ in $(seq 80); do
    write
    [[ -z $(firing NcclRankStopped) ]] && break
    sleep 0.25
done
answer=$(firing NcclRankStopped) && [[ -z $answer ]]
result "monitoring, which ends when the rank goes on" $? prometheus.log
