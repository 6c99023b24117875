# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/nccl/: our own declarations of NCCL's net plugin interface, one header per version.
EXTRA_DIST += plugin/nccl/types.h plugin/nccl/net_v4.h plugin/nccl/net_v5.h plugin/nccl/net_v6.h \
    plugin/nccl/net_v7.h plugin/nccl/net_v8.h plugin/nccl/net_v9.h plugin/nccl/net_v10.h \
    plugin/nccl/net_v11.h plugin/nccl/net_v12.h plugin/nccl/profiler.h
