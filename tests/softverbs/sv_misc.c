/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Names, rates, and calls that no profile supports. These fail as they do in a provider without
 * them. */
#include "sv_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

SV_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const text[] = {
        "success",
        "local length error",
        "local QP operation error",
        "local EE context operation error",
        "local protection error",
        "Work Request Flushed Error",
        "memory management operation error",
        "bad response error",
        "local access error",
        "remote invalid request error",
        "remote access error",
        "remote operation error",
        "transport retry counter exceeded",
        "RNR retry counter exceeded",
        "local RDD violation error",
        "remote invalid RD request",
        "aborted error",
        "invalid EE context number",
        "invalid EE context state",
        "fatal error",
        "response timeout error",
        "general error",
    };
    return (unsigned int)status < sizeof text / sizeof text[0] ? text[status] : "unknown";
}

SV_EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
    static const char *const text[] = {"no state change (NOP)", "down", "init", "armed", "active",
                                       "active defer"};
    return (unsigned int)state < sizeof text / sizeof text[0] ? text[state] : "invalid state";
}

SV_EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
    return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

SV_EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
    static const char *const text[] = {
        "CQ error",
        "local work queue catastrophic error",
        "invalid request local work queue error",
        "local access violation work queue error",
        "communication established",
        "send queue drained",
        "path migrated",
        "path migration request error",
        "local catastrophic error",
        "port active",
        "port error",
        "LID change",
        "P_Key change",
        "SM change",
        "SRQ catastrophic error",
        "SRQ limit reached",
        "last WQE reached",
        "client reregistration",
        "GID table change",
        "WQ fatal",
    };
    return (unsigned int)event < sizeof text / sizeof text[0] ? text[event] : "unknown";
}

SV_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
    switch (rate) {
    case IBV_RATE_2_5_GBPS:
        return 1;
    case IBV_RATE_5_GBPS:
        return 2;
    case IBV_RATE_10_GBPS:
        return 4;
    case IBV_RATE_20_GBPS:
        return 8;
    case IBV_RATE_40_GBPS:
        return 16;
    default:
        return -1;
    }
}

SV_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
    int m = ibv_rate_to_mult(rate);
    return m < 0 ? m : m * 2500;
}

/* Reads the first line of a file, without its end. The file is of a real system's sysfs or of the
 * written tree. */
SV_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
SV_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, buf, size);
    close(fd);
    if (n > 0 && buf[n - 1] == '\n')
        buf[--n] = '\0';
    else if (n >= 0 && (size_t)n < size)
        buf[n] = '\0';
    return (int)n;
}

SV_EXPORT const char *ibv_get_sysfs_path(void);
SV_EXPORT const char *ibv_get_sysfs_path(void)
{
    return sv.sysfs[0] ? sv.sysfs : "/sys";
}

/* ---- what vmw_pvrdma and this stand-in do not have ---- */

SV_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    return NULL;
}

SV_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return EOPNOTSUPP;
}

SV_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return EOPNOTSUPP;
}

SV_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    return 0; /* not promised */
}

SV_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                           size_t length, int access)
{
    return IBV_REREG_MR_ERR_CMD;
}

SV_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    errno = EOPNOTSUPP;
    return NULL;
}

SV_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    return EOPNOTSUPP;
}

SV_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    return EOPNOTSUPP;
}

SV_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
    return EOPNOTSUPP;
}

SV_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    errno = EOPNOTSUPP;
    return NULL;
}

SV_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                               struct ibv_grh *grh, uint8_t port)
{
    errno = EOPNOTSUPP;
    return NULL;
}

SV_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    return EOPNOTSUPP;
}

SV_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return EOPNOTSUPP;
}

SV_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return EOPNOTSUPP;
}
