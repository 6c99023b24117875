# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/tools/: code that pvn-perf and pvn-topo share and the plugin does not need: options, the rendezvous of a
# launcher's ranks, the checksum of a file, and the repair of closed standard streams.
if TOOLS
noinst_LTLIBRARIES += libpvn-tools.la
else
EXTRA_LTLIBRARIES += libpvn-tools.la
endif
libpvn_tools_la_SOURCES = plugin/tools/boot.c plugin/tools/boot.h plugin/tools/boot_accept.c plugin/tools/boot_accept.h plugin/tools/boot_key.c plugin/tools/boot_key.h \
    plugin/tools/boot_line.c plugin/tools/boot_line.h plugin/tools/boot_relay.c plugin/tools/boot_relay.h plugin/tools/boot_tcp.c plugin/tools/boot_tcp.h \
    plugin/tools/json_text.h plugin/tools/launch_env.c plugin/tools/launch_env.h plugin/tools/nccl_conf.c plugin/tools/nccl_conf.h plugin/tools/options.c plugin/tools/options.h plugin/tools/pmix.c plugin/tools/pmix.h plugin/tools/sha256.c \
    plugin/tools/sha256.h plugin/tools/std_fds.c plugin/tools/std_fds.h
