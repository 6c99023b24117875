/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* SEAL: both ends prove that they have the key, and the control connection is sealed. */
#include "config.h"
#include "connect/conn_priv.h"
#include "connect/handshake_priv.h"
#include "connect/token.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/hints.h"
#include "base/random.h"

/* The label of the TLS exporter. The labels of OpenSSL and of other programs begin differently. */
#define STREAMS "EXPORTER-nccl-net-pvrdma-1-streams"

static int fail(struct pvn_conn *c, struct pvn_err *err)
{
    pvn_err_set_fault(err, PVN_FAULT_REMOTE);
    if (err->code == -EKEYREJECTED)
        pvn_err_set_hint(err, PVN_HINT_OTHER_KEY);
    return conn_fail_now(c, err);
}

/* Begins the handshake. 0, or the connection has failed. */
static int begin(struct pvn_conn *c)
{
    uint8_t secret[PVN_SEAL_SECRET];
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_key_derive(c->cfg.key, "control", c->cfg.session, c->cfg.nonce, secret,
                            sizeof(secret), &err);

    if (rc == 0)
        c->ctrl.seal = pvn_seal_new(c->ctrl.fd, !c->cfg.sender, secret, &err);
    explicit_bzero(secret, sizeof(secret));
    return c->ctrl.seal ? 0 : conn_fail_now(c, &err);
}

/* Takes one step of the handshake. At its end the connection is sealed, and the state is HELLO. */
static int shake(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_seal_handshake(c->ctrl.seal, &err);

    if (rc == -EAGAIN)
        return rc;
    /* The listener's refusal in the clear, or its end of stream, came after the caller had looked.
     * The next step sees it. */
    if (rc == -ENOMSG && !c->ctrl.started)
        return -EAGAIN;
    if ((rc == -ECONNRESET || rc == -EPIPE) && c->cfg.sender && !c->ctrl.started && conn_redial(c))
        return -EAGAIN;
    if (rc == 0)
        rc = pvn_seal_export(c->ctrl.seal, STREAMS, c->streams, sizeof(c->streams), &err);
    if (rc)
        return fail(c, &err);
    pvn_ctrl_seal(&c->ctrl);
    c->ctrl.started = false;
    conn_goto(c, PVN_CONN_HELLO);
    return 0;
}

_Static_assert(PVN_FRAME_TYPES <= 20, "a record of TLS begins with 20 to 23, a frame with less");

/* Peeks at the first n bytes. Returns how many have come, 0 at end of stream, or a negative
 * errno. */
static ssize_t look(const struct pvn_conn *c, uint8_t *buf, size_t n)
{
    ssize_t got = recv(c->ctrl.fd, buf, n, MSG_PEEK | MSG_DONTWAIT);

    return got < 0 ? -errno : got;
}

/* ---- connector ---- */

static int put_preamble(struct pvn_conn *c)
{
    struct pvn_preamble p = {.version = PVN_WIRE_VERSION,
                             .kind = PVN_PREAMBLE_CTRL_KEY,
                             .session = c->cfg.session,
                             .nonce = pvn_random64()};
    uint8_t bytes[PVN_PREAMBLE_MOST];
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_token_of_control(c->cfg.key, p.session, p.nonce, p.token, &err);

    c->cfg.nonce = p.nonce;
    if (rc == 0)
        rc = pvn_ctrl_put(&c->ctrl, bytes, (size_t)pvn_preamble_encode(bytes, &p), &err);
    c->frame_sent = rc == 0;
    return rc ? conn_fail_now(c, &err) : 0;
}

/* Takes the listener's answer in the clear. The listener has proved nothing, so only an ERROR frame
 * is accepted, which says why it refuses. */
static int take_refusal(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    enum pvn_frame_type type = PVN_FRAME_ERROR;
    const uint8_t *body = NULL;
    char key[PVN_KEY_TEXT];
    size_t len = 0;
    int rc = pvn_ctrl_get(&c->ctrl, &type, &body, &len, &err);

    /* A GOODBYE, for example, would end a comm in a failover and report messages as received. */
    if (rc > 0 && type != PVN_FRAME_ERROR) {
        pvn_err_set(&err, -EKEYREJECTED,
                    "the peer does not prove the key: it answers in the clear (%s frame)",
                    pvn_frame_name(type));
        return fail(c, &err);
    }
    rc = conn_judge(c, rc, 0, type, body, len, &err);
    if (rc != -EAGAIN)
        pvn_err_add(&c->err, "this end's key has %s", pvn_key_describe(c->cfg.key, key));
    return rc;
}

int conn_step_seal_connector(struct pvn_conn *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    uint8_t first = 0;
    ssize_t n;

    if (!c->frame_sent && put_preamble(c) != 0)
        return c->err.code;
    pvn_ctrl_flush(&c->ctrl, NULL); /* if it fails, so does look */
    if (!c->in_clear && !c->ctrl.started) {
        n = look(c, &first, 1);
        if (n == 0 || (n < 0 && n != -EAGAIN)) {
            if ((n == 0 || n == -ECONNRESET) && conn_redial(c))
                return -EAGAIN;
            pvn_err_set(&err, n ? (int)n : -EPIPE,
                        "the peer closed the connection before it proved the key");
            return fail(c, &err);
        }
        c->in_clear = n > 0 && first < PVN_FRAME_TYPES;
        c->ctrl.started = n > 0 && !c->in_clear;
    }
    if (c->in_clear)
        return take_refusal(c);
    if (c->ctrl.tx_len > 0)
        return -EAGAIN;
    if (!c->ctrl.seal && begin(c) != 0)
        return c->err.code;
    return shake(c);
}

/* ---- acceptor ---- */

int conn_step_seal_acceptor(struct pvn_conn *c)
{
    uint8_t first[PVN_SEAL_FIRST_BYTES];
    struct pvn_err err = PVN_ERR_INIT;
    ssize_t n;
    int rc;

    if (c->ctrl.seal)
        return shake(c);
    n = look(c, first, sizeof(first));
    if (n == -EAGAIN)
        return -EAGAIN;
    if (n <= 0) {
        pvn_err_set(&err, n ? (int)n : -EPIPE,
                    "the peer closed the connection within its handshake");
        return fail(c, &err);
    }
    rc = pvn_seal_is_first(first, (size_t)n);
    if (rc < 0) {
        pvn_err_set(&err, -EKEYREJECTED,
                    "what came behind the preamble is no handshake of TLS 1.3");
        return fail(c, &err);
    }
    if (rc == 0)
        return -EAGAIN;
    if (begin(c) != 0)
        return c->err.code;
    return shake(c);
}
