# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/hosts: lists of hosts, and a command on each of them.
libpvntopotool_la_SOURCES += topo/hosts/fetch.c topo/hosts/fetch.h topo/hosts/host_list.c topo/hosts/host_list.h topo/hosts/text.c topo/hosts/text.h
