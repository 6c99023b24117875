/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A comm's life from listen to close, for tests that inject a failure into it.
#ifndef TESTS_ABI_LIFE_H
#define TESTS_ABI_LIFE_H

#include "abi/nccl_side.h"

namespace nccl
{

// Runs both ends on this thread: set-up, three messages, close. Asserts nothing.
class Life
{
  public:
    bool up = false, done = false;
    const char *failed_in = ""; // the plugin's call that failed first

    explicit Life(Net &n) : d(n.d), ctx(n.ctx)
    {
        live();
    }

  private:
    pvn_netdrv *d;
    void *ctx;
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *sc = nullptr, *rc = nullptr, *smh = nullptr, *rmh = nullptr;
    std::vector<unsigned char> from = std::vector<unsigned char>(300000), to = from;

    bool ok(ncclResult_t result, const char *call)
    {
        if (result != ncclSuccess && !*failed_in)
            failed_in = call;
        return result == ncclSuccess;
    }
    // Calls each end until it is up or has failed, as two processes would.
    bool set_up()
    {
        bool sends = true, receives = true;
        eventually([&] {
            sends = sends && (sc || ok(pvn_netdrv_connect(d, ctx, 0, handle, &sc), "connect"));
            receives = receives && (rc || ok(pvn_netdrv_accept(d, lc, &rc), "accept"));
            return (sc || !sends) && (rc || !receives);
        });
        return sc && rc;
    }
    bool move(size_t size)
    {
        void *sr = nullptr, *rr = nullptr, *data = to.data();
        int tag = 0, sent = 0, received = 0, got = 0;
        bytes::fill(from.data(), size, static_cast<unsigned>(size));
        eventually([&] {
            const bool going =
                (sr ||
                 ok(pvn_netdrv_isend(d, sc, from.data(), size, 0, smh, nullptr, &sr), "isend")) &&
                (rr ||
                 ok(pvn_netdrv_irecv(d, rc, 1, &data, &size, &tag, &rmh, nullptr, &rr), "irecv")) &&
                (!sr || sent || ok(pvn_netdrv_test(d, sr, &sent, nullptr), "test")) &&
                (!rr || received || ok(pvn_netdrv_test(d, rr, &received, &got), "test"));
            return !going || (sent && received);
        });
        return sent && received && got == static_cast<int>(size) &&
               bytes::are(to.data(), size, static_cast<unsigned>(size));
    }
    bool carry()
    {
        return ok(pvn_netdrv_reg_mr(d, sc, from.data(), from.size(), NCCL_PTR_HOST, &smh),
                  "regMr") &&
               ok(pvn_netdrv_reg_mr(d, rc, to.data(), to.size(), NCCL_PTR_HOST, &rmh), "regMr") &&
               move(8) && move(300000) && move(5000);
    }
    void live()
    {
        if (!ok(pvn_netdrv_listen(d, ctx, 0, handle, &lc), "listen"))
            return;
        up = set_up();
        done = up && carry();
        if (smh)
            done &= ok(pvn_netdrv_dereg_mr(d, sc, smh), "deregMr");
        if (rmh)
            done &= ok(pvn_netdrv_dereg_mr(d, rc, rmh), "deregMr");
        done &= ok(pvn_netdrv_close_send(d, sc), "closeSend");
        done &= ok(pvn_netdrv_close_recv(d, rc), "closeRecv");
        done &= ok(pvn_netdrv_close_listen(d, lc), "closeListen");
    }
};

} // namespace nccl

#endif
