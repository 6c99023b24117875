/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// plugin/nccl/types.h against NCCL's own headers, at compile time: the installed net_device.h, and
// with PVN_NCCL_SOURCE the nccl_net.h of an NCCL source tree (tests/nccl/run).
#ifndef TESTS_NCCL_VALUES_H
#define TESTS_NCCL_VALUES_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

namespace ours
{
#include "plugin/nccl/types.h"
constexpr int optional_recv = NCCL_NET_OPTIONAL_RECV_COMPLETION;
constexpr int multi_request = NCCL_NET_MULTI_REQUEST;
constexpr int handle_max = NCCL_NET_HANDLE_MAXSIZE;
constexpr int ptr_host = NCCL_PTR_HOST, ptr_cuda = NCCL_PTR_CUDA, ptr_dmabuf = NCCL_PTR_DMABUF;
constexpr int invalid_version = NCCL_NET_DEVICE_INVALID_VERSION;
} // namespace ours

#undef NCCL_MAX_NET_SIZE_BYTES
#undef NCCL_NET_OPTIONAL_RECV_COMPLETION
#undef NCCL_NET_MULTI_REQUEST
#undef NCCL_NET_HANDLE_MAXSIZE
#undef NCCL_PTR_HOST
#undef NCCL_PTR_CUDA
#undef NCCL_PTR_DMABUF
#undef NCCL_NET_DEVICE_INVALID_VERSION
#undef NCCL_NET_TRAFFIC_CLASS_UNDEF
#undef NCCL_NET_ATTR_UNDEF
#undef NCCL_NET_ID_UNDEF
#undef NCCL_NET_MAX_DEVS_PER_NIC_V9
#undef NCCL_NET_MAX_DEVS_PER_NIC_V10
#undef NCCL_NET_MAX_DEVS_PER_NIC_V11
#undef NCCL_NET_MAX_DEVS_PER_NIC_V12

#ifdef PVN_NCCL_SOURCE
#include "nccl_net.h"
static_assert(ours::optional_recv == NCCL_NET_OPTIONAL_RECV_COMPLETION, "types.h");
static_assert(ours::handle_max == NCCL_NET_HANDLE_MAXSIZE, "types.h");
static_assert(ours::ptr_host == NCCL_PTR_HOST && ours::ptr_cuda == NCCL_PTR_CUDA &&
                  ours::ptr_dmabuf == NCCL_PTR_DMABUF,
              "types.h");
#ifdef NCCL_NET_MULTI_REQUEST /* from 2.30 on */
static_assert(ours::multi_request == NCCL_NET_MULTI_REQUEST, "types.h");
#endif
#define PVN_NCCL_DEVICE_H
#elif __has_include(<nccl.h>) && __has_include(<nccl_device/net_device.h>) && \
    __has_include(<cuda_runtime.h>)
#include <nccl.h>
#include <nccl_device/net_device.h>
#define PVN_NCCL_DEVICE_H
#endif

#ifdef PVN_NCCL_DEVICE_H
static_assert(ours::invalid_version == NCCL_NET_DEVICE_INVALID_VERSION, "types.h");
static_assert(int(ours::NCCL_NET_DEVICE_HOST) == int(NCCL_NET_DEVICE_HOST), "types.h");
static_assert(int(ours::NCCL_NET_DEVICE_UNPACK) == int(NCCL_NET_DEVICE_UNPACK), "types.h");
static_assert(int(ours::NCCL_NET_DEVICE_GIN_PROXY) == int(NCCL_NET_DEVICE_GIN_PROXY), "types.h");
static_assert(int(ours::NCCL_NET_DEVICE_GIN_GDAKI) == int(NCCL_NET_DEVICE_GIN_GDAKI), "types.h");
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
static_assert(int(ours::NCCL_NET_DEVICE_GIN_GPI) == int(NCCL_NET_DEVICE_GIN_GPI), "types.h");
#define PVN_NCCL_GIN_GPI
#endif
#endif

#endif
