/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries that are present but unusable. They have two entry points, which find nothing. The
 * functions that are missing around these make loading fail. libsvpartial has the two under the
 * right version, libsvancient under a version that no rdma-core ever had.
 */
#include <infiniband/verbs.h>

#include <stdlib.h>

#define SV_EXPORT __attribute__((visibility("default")))

SV_EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
    if (num)
        *num = 0;
    return calloc(1, sizeof(struct ibv_device *));
}

SV_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}
