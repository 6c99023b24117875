# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/monitoring/: tests of plugin/packaging/monitoring with systemd, Prometheus and node_exporter.
if !SANITIZE
if TOOLS
PVN_SCRIPT_TESTS += tests/monitoring/monitoring.sh
endif
endif
EXTRA_DIST += tests/monitoring/dashboard.py tests/monitoring/grafana.py tests/monitoring/requirements.txt \
    tests/monitoring/nccl-net-pvrdma.rules.test.yml
