/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols that provider libraries and librdmacm import from libibverbs. Programs such as perftest
 * are linked to these libraries and resolve every symbol at start, so the names must exist.
 * softverbs has no providers, so only the registration is ever called, and it is ignored.
 */
#include "sv_int.h"

#include <errno.h>
#include <stdlib.h>

struct verbs_device_ops;
SV_EXPORT void verbs_register_driver_34(const struct verbs_device_ops *ops);
SV_EXPORT void verbs_register_driver_34(const struct verbs_device_ops *ops)
{
}

SV_EXPORT int ibv_dofork_range(void *base, size_t size);
SV_EXPORT int ibv_dofork_range(void *base, size_t size)
{
    return 0;
}

SV_EXPORT int ibv_dontfork_range(void *base, size_t size);
SV_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
    return 0;
}

SV_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                          uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
    return EOPNOTSUPP;
}

static void called(const char *name)
{
    fprintf(stderr, "softverbs: %s was called; there are no providers here\n", name);
    abort();
}

#define FOR_PROVIDERS(name)                                                                        \
    SV_EXPORT void name(void);                                                                     \
    SV_EXPORT void name(void)                                                                      \
    {                                                                                              \
        called(#name);                                                                             \
    }

FOR_PROVIDERS(__verbs_log)
FOR_PROVIDERS(_verbs_init_and_alloc_context)
FOR_PROVIDERS(execute_ioctl)
FOR_PROVIDERS(ibv_cmd_advise_mr)
FOR_PROVIDERS(ibv_cmd_alloc_dm)
FOR_PROVIDERS(ibv_cmd_alloc_mw)
FOR_PROVIDERS(ibv_cmd_alloc_pd)
FOR_PROVIDERS(ibv_cmd_attach_mcast)
FOR_PROVIDERS(ibv_cmd_close_xrcd)
FOR_PROVIDERS(ibv_cmd_create_ah)
FOR_PROVIDERS(ibv_cmd_create_counters)
FOR_PROVIDERS(ibv_cmd_create_cq_ex)
FOR_PROVIDERS(ibv_cmd_create_flow)
FOR_PROVIDERS(ibv_cmd_create_flow_action_esp)
FOR_PROVIDERS(ibv_cmd_create_qp_ex)
FOR_PROVIDERS(ibv_cmd_create_qp_ex2)
FOR_PROVIDERS(ibv_cmd_create_rwq_ind_table)
FOR_PROVIDERS(ibv_cmd_create_srq)
FOR_PROVIDERS(ibv_cmd_create_srq_ex)
FOR_PROVIDERS(ibv_cmd_create_wq)
FOR_PROVIDERS(ibv_cmd_dealloc_mw)
FOR_PROVIDERS(ibv_cmd_dealloc_pd)
FOR_PROVIDERS(ibv_cmd_dereg_mr)
FOR_PROVIDERS(ibv_cmd_destroy_ah)
FOR_PROVIDERS(ibv_cmd_destroy_counters)
FOR_PROVIDERS(ibv_cmd_destroy_cq)
FOR_PROVIDERS(ibv_cmd_destroy_flow)
FOR_PROVIDERS(ibv_cmd_destroy_flow_action)
FOR_PROVIDERS(ibv_cmd_destroy_qp)
FOR_PROVIDERS(ibv_cmd_destroy_rwq_ind_table)
FOR_PROVIDERS(ibv_cmd_destroy_srq)
FOR_PROVIDERS(ibv_cmd_destroy_wq)
FOR_PROVIDERS(ibv_cmd_detach_mcast)
FOR_PROVIDERS(ibv_cmd_free_dm)
FOR_PROVIDERS(ibv_cmd_get_context)
FOR_PROVIDERS(ibv_cmd_modify_cq)
FOR_PROVIDERS(ibv_cmd_modify_flow_action_esp)
FOR_PROVIDERS(ibv_cmd_modify_qp)
FOR_PROVIDERS(ibv_cmd_modify_qp_ex)
FOR_PROVIDERS(ibv_cmd_modify_srq)
FOR_PROVIDERS(ibv_cmd_modify_wq)
FOR_PROVIDERS(ibv_cmd_open_qp)
FOR_PROVIDERS(ibv_cmd_open_xrcd)
FOR_PROVIDERS(ibv_cmd_query_context)
FOR_PROVIDERS(ibv_cmd_query_device_any)
FOR_PROVIDERS(ibv_cmd_query_mr)
FOR_PROVIDERS(ibv_cmd_query_port)
FOR_PROVIDERS(ibv_cmd_query_qp)
FOR_PROVIDERS(ibv_cmd_query_srq)
FOR_PROVIDERS(ibv_cmd_read_counters)
FOR_PROVIDERS(ibv_cmd_reg_dm_mr)
FOR_PROVIDERS(ibv_cmd_reg_dmabuf_mr)
FOR_PROVIDERS(ibv_cmd_reg_mr)
FOR_PROVIDERS(ibv_cmd_rereg_mr)
FOR_PROVIDERS(ibv_cmd_resize_cq)
FOR_PROVIDERS(verbs_allow_disassociate_destroy)
FOR_PROVIDERS(verbs_init_cq)
FOR_PROVIDERS(verbs_open_device)
FOR_PROVIDERS(verbs_set_ops)
FOR_PROVIDERS(verbs_uninit_context)
FOR_PROVIDERS(ibv_copy_ah_attr_from_kern)
FOR_PROVIDERS(ibv_copy_path_rec_from_kern)
FOR_PROVIDERS(ibv_copy_qp_attr_from_kern)
