# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/packaging/monitoring: units, alerts and a dashboard over pvn-topo --prom stat. Not where systemd, Prometheus and
# Grafana would take them by themselves: the administrator copies what fits the site (README.md).
if TOOLS
pvn_monitoringdir = $(pkgdatadir)/monitoring
dist_pvn_monitoring_DATA = \
    plugin/packaging/monitoring/README.md \
    plugin/packaging/monitoring/nccl-net-pvrdma-stat.service \
    plugin/packaging/monitoring/nccl-net-pvrdma-stat.timer \
    plugin/packaging/monitoring/nccl-net-pvrdma.dashboard.json \
    plugin/packaging/monitoring/nccl-net-pvrdma.rules.yml
endif
