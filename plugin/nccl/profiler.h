/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that a net plugin passes to NCCL's profilers through ncclProfilerCallback_t (types.h), as the `extData` of a
 * start. `pluginId` identifies the layout. NCCL's own transports use these two layouts (2.26 to 2.30), so their
 * profilers also work with this plugin.
 */
#ifndef PVN_NCCL_PROFILER_H
#define PVN_NCCL_PROFILER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_PROFILER_NET_TYPE_IB   (INT64_C(1) << 16)
#define NCCL_PROFILER_NET_TYPE_SOCK (INT64_C(2) << 16)
/* The version in pluginId's low 16 bits. */
#define NCCL_PROFILER_NET_IB_VER     1
#define NCCL_PROFILER_NET_SOCKET_VER 1

/* Values of `type`; each layout has only one event. */
enum { ncclProfileQp = 1, ncclProfileSocket = 1 };

/* A work request on a queue pair. */
typedef struct {
    uint8_t type;
    union {
        struct {
            int device;     /* index of the net device */
            uint64_t wr_id; /* identifies the work request; opaque */
            int opcode;     /* enum ibv_wr_opcode */
            int qpNum;
            size_t length; /* bytes of data */
        } qp;
    };
} ncclProfilerNetIbDescr_v1_t;

/* Values of sock.op. */
enum { NCCL_SOCKET_SEND = 0, NCCL_SOCKET_RECV = 1 };

/* A transfer on a socket. */
typedef struct {
    uint8_t type;
    union {
        struct {
            int fd;
            int op;
            size_t length; /* bytes */
        } sock;
    };
} ncclProfilerNetSockDescr_v1_t;

static_assert(offsetof(ncclProfilerNetIbDescr_v1_t, qp.device) == 8, "device");
static_assert(offsetof(ncclProfilerNetIbDescr_v1_t, qp.wr_id) == 16, "wr_id");
static_assert(offsetof(ncclProfilerNetIbDescr_v1_t, qp.opcode) == 24, "opcode");
static_assert(offsetof(ncclProfilerNetIbDescr_v1_t, qp.qpNum) == 28, "qpNum");
static_assert(offsetof(ncclProfilerNetIbDescr_v1_t, qp.length) == 32, "length");
static_assert(sizeof(ncclProfilerNetIbDescr_v1_t) == 40, "ncclProfilerNetIbDescr_v1_t");
static_assert(offsetof(ncclProfilerNetSockDescr_v1_t, sock.fd) == 8, "fd");
static_assert(offsetof(ncclProfilerNetSockDescr_v1_t, sock.op) == 12, "op");
static_assert(offsetof(ncclProfilerNetSockDescr_v1_t, sock.length) == 16, "length");
static_assert(sizeof(ncclProfilerNetSockDescr_v1_t) == 24, "ncclProfilerNetSockDescr_v1_t");

#endif
