/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/sockio.h"

#include "seal/plain.h"

static bool nothing_pending(const struct pvn_seal *seal)
{
    (void)seal;
    return false;
}

static ssize_t sealed_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n)
{
    (void)fd;
    return pvn_seal_sendv(seal, iov, n);
}

static ssize_t sealed_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags)
{
    (void)fd;
    (void)flags;
    return pvn_seal_recvv(seal, iov, n);
}

const struct pvn_sockio pvn_sockio_plain = {pvn_plain_sendv, pvn_plain_recvv, nothing_pending};
const struct pvn_sockio pvn_sockio_sealed = {sealed_sendv, sealed_recvv, pvn_seal_has_pending};
const struct pvn_sockio pvn_sockio_in_kernel = {pvn_seal_kernel_sendv, pvn_seal_kernel_recvv,
                                                pvn_seal_kernel_has_pending};

const struct pvn_sockio *pvn_sockio_of(const struct pvn_seal *seal)
{
    return pvn_seal_is_by_kernel(seal) ? &pvn_sockio_in_kernel : &pvn_sockio_sealed;
}
