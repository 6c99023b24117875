/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between `pvn-perf serve` and `pvn-perf p2p HOST` before a run: the client sends its
 * options as a request, and the server accepts or gives a reason. Each message is a header of three
 * numbers in network order and JSON of at most PVN_SERVE_TEXT_MAX bytes. All of it is checked
 * before use. Afterwards the connection belongs to two ranks (tools/boot.h); the client is rank 0.
 * With a key (tools/boot_key.h) the client sends a knock first, the server answers it, and the rest
 * is sealed. A knock has the form of a request, so a server of a release without keys refuses it as
 * an unknown option. Versions of pvn-perf may differ if PVN_SERVE_WIRE is the same.
 */
#ifndef PVN_PERF_SERVE_PROTO_H
#define PVN_PERF_SERVE_PROTO_H

#include "perf/options/opts.h"
#include "tools/boot_key.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_SERVE_PORT     19516
#define PVN_SERVE_TEXT_MAX 16384
/* Increases when the data that ranks of p2p exchange changes: struct refusal, struct
 * pvn_row_device, struct pvn_row_peer, and the data that p2p.c gathers and shares. */
#define PVN_SERVE_WIRE 1

struct pvn_serve_head {
    uint32_t magic, wire, len;
};

struct pvn_serve_answer {
    int ok;
    char reason[384]; /* the reason if not ok */
    char host[64], version[64];
};

/* Checks a header. 0 and the length of the JSON, or a negative errno with why. */
int pvn_serve_check_head(const struct pvn_serve_head *h, uint32_t *len, char *why, size_t why_len);

/* Make a message: header and JSON, malloc'ed, *len bytes; NULL if memory is short. */
char *pvn_serve_write_request(const struct pvn_perf_opts *o, size_t *len);
char *pvn_serve_write_knock(const struct pvn_boot_knock *k, size_t *len);
char *pvn_serve_write_answer(const struct pvn_serve_answer *a, size_t *len);

/* 1 and *k if the text is a knock; else 0. */
int pvn_serve_read_knock(const char *text, size_t len, struct pvn_boot_knock *k);

/*
 * Sets the options that a client decides in *o, which has the server's own options. who (at least
 * 160 bytes) describes the client. 0, or -EINVAL with a sentence in why, which is sent to the
 * client.
 */
int pvn_serve_read_request(const char *text, size_t len, struct pvn_perf_opts *o, char *who,
                           size_t who_len, char *why, size_t why_len);
int pvn_serve_read_answer(const char *text, size_t len, struct pvn_serve_answer *a);

#ifdef __cplusplus
}
#endif

#endif
