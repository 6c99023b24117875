/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PVN_TESTS_SUPPORT_HANDLE_PROXY_H
#define PVN_TESTS_SUPPORT_HANDLE_PROXY_H

#include "support/chaosproxy.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

extern "C" {
#include "connect/wire.h"
}

// A proxy in front of a listener, whose handle leads to the proxy from now on. The control
// connections of the handle's comm pass through it, and the streams of its TCP lanes do not.
inline std::unique_ptr<ChaosProxy> proxy_of_handle(char *handle, ChaosProxy::Look look = {})
{
    auto *bytes = reinterpret_cast<uint8_t *>(handle);
    pvn_handle h = {};
    sockaddr_storage at = {};
    if (pvn_handle_decode(bytes, PVN_HANDLE_BYTES, &h, nullptr) != 0) {
        fprintf(stderr, "proxy_of_handle: this is no listener's handle\n");
        abort();
    }
    pvn_wire_addr_to_sockaddr(&h.addr, 0, &at);
    auto proxy = std::make_unique<ChaosProxy>(at, ChaosProxy::Plan{}, std::move(look));
    h.addr.port = proxy->port();
    h.nmore = 0;
    pvn_handle_encode(bytes, &h);
    return proxy;
}

#endif
