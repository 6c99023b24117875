# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/abi/: one adapter per version of NCCL's net plugin interface, and the list of the plugin's transports.
libnccl_net_pvrdma_la_SOURCES += plugin/abi/common.c plugin/abi/common.h plugin/abi/net_v4.c \
    plugin/abi/net_v5.c plugin/abi/net_v6.c plugin/abi/net_v7.c plugin/abi/net_v8.c \
    plugin/abi/net_v9.c plugin/abi/net_v10.c plugin/abi/net_v11.c plugin/abi/net_v12.c \
    plugin/abi/transports.c
