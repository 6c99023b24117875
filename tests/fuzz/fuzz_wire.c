/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: every decoder of the wire format of the control connection and of TCP's streams.
 * The first byte chooses the decoder. An accepted value is encoded again and decodes as the same
 * value. */
#include "config.h"

#include <stdbool.h>
#include <string.h>

#include "connect/wire.h"
#include "engine/engine.h"
#include "fuzz/fuzz.h"
#include "fuzz/hex.h"
#include "net-tcp/frame.h"

#define SESSION UINT64_C(0x4242424242424242)

static void refused(int rc, const struct pvn_err *err)
{
    fuzz_require(rc < 0 && err->code == rc && err->reason[0][0], "a refusal has its reason");
}

static void handle(const uint8_t *p, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_handle h, again;
    uint8_t out[PVN_HANDLE_BYTES];
    int rc = pvn_handle_decode(p, n, &h, &err);

    if (rc) {
        refused(rc, &err);
        return;
    }
    pvn_handle_encode(out, &h);
    fuzz_require(pvn_handle_decode(out, sizeof(out), &again, NULL) == 0, "handle reads back");
    fuzz_require(h.session == again.session && h.cookie == again.cookie &&
                     h.addr.port == again.addr.port && h.nmore == again.nmore &&
                     h.has_key == again.has_key && memcmp(h.more, again.more, sizeof(h.more)) == 0,
                 "the same handle");
}

static void preamble(const uint8_t *p, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_preamble pre;
    size_t i;
    bool foreign = false;

    for (i = 0; i <= n && i <= pvn_preamble_bytes(p, n); i++) {
        int rc = pvn_preamble_decode(p, i, SESSION, &pre, &err);

        if (rc < 0) {
            refused(rc, &err);
            foreign = true;
        } else {
            fuzz_require(!foreign, "a connection of another kind stays one");
            fuzz_require((rc == 1) == (i == pvn_preamble_bytes(p, i)),
                         "complete at the end, not before");
        }
        if (rc == 1)
            fuzz_require(pre.session == SESSION && pre.lane < PVN_MAX_LANES && pre.nonce,
                         "in range");
    }
}

static void header(const uint8_t *p, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_frame_header h;
    int rc;

    if (n < PVN_FRAME_HEADER_BYTES)
        return;
    rc = pvn_frame_header_decode(p, &h, &err);
    if (rc)
        refused(rc, &err);
    else
        fuzz_require(h.len <= PVN_FRAME_BODY_MAX && h.type < PVN_FRAME_TYPES, "in range");
}

static void hello(const uint8_t *p, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_hello h, again;
    uint8_t out[512];
    int rc = pvn_hello_decode(p, n, &h, &err);

    if (rc) {
        refused(rc, &err);
        return;
    }
    rc = pvn_hello_encode(out, sizeof(out), &h);
    fuzz_require(rc > 0 && pvn_hello_decode(out, (size_t)rc, &again, NULL) == 0,
                 "HELLO reads back");
    fuzz_require(memcmp(&h, &again, sizeof(h)) == 0, "the same HELLO");
}

static void offer(const uint8_t *p, size_t n)
{
    static uint8_t out[PVN_FRAME_BODY_MAX];
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_offer o, again;
    int i, rc = pvn_offer_decode(p, n, &o, &err);

    if (rc) {
        refused(rc, &err);
        return;
    }
    for (i = 0; i < o.n; i++)
        fuzz_require(o.lane[i].len == 0 ||
                         (o.lane[i].blob >= p && o.lane[i].blob + o.lane[i].len <= p + n),
                     "blobs lie inside the frame");
    rc = pvn_offer_encode(out, sizeof(out), &o);
    fuzz_require(rc >= 0 && pvn_offer_decode(out, (size_t)rc, &again, NULL) == 0,
                 "OFFER reads back");
    fuzz_require(again.n == o.n, "the same OFFER");
}

static void small(const uint8_t *p, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[PVN_REASON_MAX];
    uint32_t lanes, open;
    int rc = pvn_alive_decode(p, n, &open, &err);

    if (rc)
        refused(rc, &err);
    else
        fuzz_require(open <= PVN_MAX_SENDS, "a possible number of open requests");
    rc = pvn_ready_decode(p, n, &lanes, &err);

    if (rc)
        refused(rc, &err);
    rc = pvn_reason_decode(p, n, text, &err);
    if (rc)
        refused(rc, &err);
    else
        fuzz_require(strlen(text) < PVN_REASON_MAX && !strpbrk(text, "\n\033"), "clean text");
}

static void failover(const uint8_t *p, size_t n)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_engine_report r, r2;
    struct pvn_engine_answer a, a2;
    uint8_t out[512];
    int rc = pvn_report_decode(p, n, &r, &err);

    if (rc)
        refused(rc, &err);
    else
        fuzz_require((rc = pvn_report_encode(out, sizeof(out), &r)) > 0 &&
                         pvn_report_decode(out, (size_t)rc, &r2, NULL) == 0 &&
                         memcmp(&r, &r2, sizeof(r)) == 0,
                     "the same REPORT");
    rc = pvn_answer_decode(p, n, &a, &err);
    if (rc)
        refused(rc, &err);
    else
        fuzz_require((rc = pvn_answer_encode(out, sizeof(out), &a)) > 0 &&
                         pvn_answer_decode(out, (size_t)rc, &a2, NULL) == 0 &&
                         memcmp(&a, &a2, sizeof(a)) == 0,
                     "the same ANSWER");
}

static void chunk_again(const struct pvn_frame *f, unsigned flags)
{
    uint8_t out[PVN_FRAME_LEN];
    struct pvn_frame again;
    unsigned flags_again;

    fuzz_require(f->recv < 128 && flags <= PVN_FRAME_FLAGS, "in range");
    pvn_frame_encode(f, flags, out);
    fuzz_require(pvn_frame_decode(out, &again, &flags_again) == 0, "a chunk's header reads back");
    fuzz_require(f->seq == again.seq && f->total == again.total && f->offset == again.offset &&
                     f->len == again.len && f->chunk == again.chunk && f->recv == again.recv &&
                     f->tag == again.tag && flags == flags_again,
                 "the same header of a chunk");
}

/* Decodes a header unchanged, then with the right magic and check, and then with a wrong bit. */
static void chunk(const uint8_t *p, size_t n)
{
    uint8_t head[PVN_FRAME_LEN], good[PVN_FRAME_LEN], check = 0;
    struct pvn_frame f = {0};
    unsigned flags;

    if (n < PVN_FRAME_LEN)
        return;
    if (pvn_frame_decode(p, &f, &flags) == 0)
        chunk_again(&f, flags);
    pvn_frame_encode(&f, 0, good);
    memcpy(head, p, sizeof(head));
    memcpy(head, good, 4);
    for (size_t i = 0; i < sizeof(head); i++)
        check ^= head[i];
    head[39] ^= check;
    fuzz_require(pvn_frame_decode(head, &f, &flags) == 0, "magic and check are right");
    chunk_again(&f, flags);
    head[n % sizeof(head)] ^= 1;
    fuzz_require(pvn_frame_decode(head, &f, &flags) < 0, "a header with a wrong bit is refused");
}

static void clear_to_send(const uint8_t *p, size_t n)
{
    struct pvn_cts c = {0}, again = {0};
    struct pvn_buffer b[PVN_MAX_RECVS];
    uint8_t out[PVN_CTS_MAX];
    int len = pvn_cts_decode(p, n, &c);

    for (size_t i = 0; i < n && i < PVN_CTS_MAX; i++) {
        int part = pvn_cts_decode(p, i, &again);

        fuzz_require(part == 0 || part == len, "a part is not whole, or is refused like all of it");
    }
    if (len <= 0)
        return;
    fuzz_require(c.n >= 1 && c.n <= PVN_MAX_RECVS && (size_t)len <= n, "in range");
    for (int i = 0; i < c.n; i++)
        b[i] = (struct pvn_buffer){.size = c.e[i].size, .tag = c.e[i].tag};
    fuzz_require(pvn_cts_encode(c.n, b, out) == (size_t)len && memcmp(out, p, (size_t)len) == 0,
                 "the same bytes of an entry");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const decoders[])(const uint8_t *, size_t) = {
        handle, preamble, header, hello, offer, small, failover, chunk, clear_to_send};
    size_t n;
    uint8_t *bytes = fuzz_bytes(data, size, &n), *exact;

    if (n > 0) {
        exact =
            /* exactly the rest, so that a read past its end is detected */
            malloc(n > 1 ? n - 1 : 1);
        memcpy(exact, bytes + 1, n - 1);
        decoders[bytes[0] % (sizeof(decoders) / sizeof(*decoders))](exact, n - 1);
        free(exact);
    }
    free(bytes);
    return 0;
}
