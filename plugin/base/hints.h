/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Hints: the probable meaning of an error and its remedy. The table has one row per known situation, and each
 * row has a test. A row is found by the error (pvn_hint_find) or by its id. */
#ifndef PVN_BASE_HINTS_H
#define PVN_BASE_HINTS_H

#include <stddef.h>

enum pvn_hint_space {
    PVN_HINT_ERRNO = 1, /* code is a positive errno */
    PVN_HINT_WC         /* code is an ibv_wc_status (rdma-core, libibverbs/verbs.h) */
};

/* The phase in which the error occurred. Phases of connecting have the names of the handshake's states. */
enum pvn_phase {
    PVN_PHASE_ANY = 0,
    PVN_PHASE_LOAD, /* finding libraries, reading parameters */
    PVN_PHASE_SCAN, /* finding devices and interfaces */
    PVN_PHASE_LISTEN,
    PVN_PHASE_ACCEPT,
    PVN_PHASE_DIAL,
    PVN_PHASE_HELLO,
    PVN_PHASE_OFFER,
    PVN_PHASE_BIND,
    PVN_PHASE_VERIFY,
    PVN_PHASE_READY,
    PVN_PHASE_TRANSFER,
    PVN_PHASE_REG, /* registering memory */
    PVN_PHASE_CLOSE,
    PVN_PHASE_COUNT
};

/* The history of the path. The meaning of an error depends on whether the path has carried data before. */
enum pvn_past {
    PVN_PAST_ANY = 0,
    PVN_PAST_NEVER_WORKED,
    PVN_PAST_WORKED,  /* its rows also match PVN_PAST_IDLE */
    PVN_PAST_IDLE,    /* it has worked and was then idle for PVN_PAST_IDLE_S or longer */
    PVN_PAST_ANSWERS, /* the peer's machine answers on another connection */
    PVN_PAST_STALLED, /* it works, but nothing has moved for the time that the user allows */
    PVN_PAST_ELSEWHERE, /* it never worked: the peer's address is a loopback address, this end's is not */
    PVN_PAST_COUNT
};

/* Seconds. The shortest idle limits of stateful firewalls are a few minutes. */
enum { PVN_PAST_IDLE_S = 60 };

/* Stable names of rows; the table is in hints.c. */
enum pvn_hint_id {
    PVN_HINT_NONE = 0,
    PVN_HINT_REFUSED_LOOPBACK,
    PVN_HINT_REFUSED,
    PVN_HINT_DIAL_TIMEOUT,
    PVN_HINT_NO_PEER,
    PVN_HINT_SILENT_HANDSHAKE,
    PVN_HINT_VERIFY_TIMEOUT,
    PVN_HINT_NOT_TAKEN,
    PVN_HINT_LOST_AFTER_WORKING,
    PVN_HINT_LARGE_PACKETS_LOST,
    PVN_HINT_PEER_IS_LATE,
    PVN_HINT_NO_ROUTE,
    PVN_HINT_NO_NETWORK,
    PVN_HINT_WRONG_SOURCE,
    PVN_HINT_RESET_HANDSHAKE,
    PVN_HINT_RESET_IDLE,
    PVN_HINT_RESET_WORKING,
    PVN_HINT_CLOSED_WORKING,
    PVN_HINT_ADDR_IN_USE,
    PVN_HINT_ADDR_GONE,
    PVN_HINT_NO_FILES,
    PVN_HINT_NO_FILES_SYSTEM,
    PVN_HINT_REG_MEMLOCK,
    PVN_HINT_NO_MEMORY,
    PVN_HINT_NO_BUFFERS,
    PVN_HINT_FORBIDDEN,
    PVN_HINT_FORBIDDEN_REG,
    PVN_HINT_FIREWALL,
    PVN_HINT_PROTO_MISMATCH,
    PVN_HINT_OTHER_KEY,
    PVN_HINT_REPLACED_KEY,
    PVN_HINT_FORGED,
    PVN_HINT_LIB_MISSING,
    PVN_HINT_NO_DEVICE,
    PVN_HINT_WC_RETRY_NEVER,
    PVN_HINT_WC_RETRY_WORKED,
    PVN_HINT_WC_RNR,
    PVN_HINT_WC_LOC_PROT,
    PVN_HINT_WC_LOC_LEN,
    PVN_HINT_WC_REM_ACCESS,
    PVN_HINT_WC_REM_INV_REQ,
    PVN_HINT_WC_REM_OP,
    PVN_HINT_WC_FLUSH,
    PVN_HINT_WC_FATAL,
    PVN_HINT_COUNT
};

struct pvn_hint {
    enum pvn_hint_id id;
    enum pvn_hint_space space;
    int code;
    enum pvn_phase phase; /* PVN_PHASE_ANY: the row matches every phase */
    enum pvn_past past;   /* PVN_PAST_ANY: the row matches every history */
    const char *likely;   /* probable cause, "nothing listens there: ...", without a full stop */
    const char *todo;     /* things to check or to type, without a full stop */
};

/* The first row that matches, or NULL. Rows for a phase or a history come before those for any. `code` may be
 * positive or negative. The row is static. May be called from any thread. */
const struct pvn_hint *pvn_hint_find(enum pvn_hint_space space, int code, enum pvn_phase phase,
                                     enum pvn_past past);

/* The id of pvn_hint_find's row, for struct pvn_err; PVN_HINT_NONE if no row matches. */
enum pvn_hint_id pvn_hint_id_find(enum pvn_hint_space space, int code, enum pvn_phase phase,
                                  enum pvn_past past);

/* The row with this id; NULL for PVN_HINT_NONE and for an invalid id. */
const struct pvn_hint *pvn_hint_get(int id);

/* The whole table, for tests and documentation. */
const struct pvn_hint *pvn_hint_table(size_t *count);

/* The name of a phase, "dial", "verify", ...; "any" for PVN_PHASE_ANY. */
const char *pvn_phase_name(enum pvn_phase phase);

#endif
