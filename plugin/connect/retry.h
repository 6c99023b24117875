/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy of all attempts to connect: after a failure the next attempt waits twice as long as
 * the one before, from the kind's first pause up to its longest. No kind limits the number of
 * attempts. They end with success, or when a limit of the whole is over (CONNECT_TIMEOUT,
 * FAILOVER_TIMEOUT).
 *
 * Threads: any.
 */
#ifndef PVN_CONNECT_RETRY_H
#define PVN_CONNECT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

/* ARCHITECTURE.md has a table with one row for each kind, in the order of this enum. tests/unit/test_retry compares the
 * table with the code by position, so a new kind needs a row at the same place. */
enum pvn_retry {
    /* A connection's TCP connection: refused, no route, or closed before the HELLO. */
    PVN_RETRY_DIAL,
    PVN_RETRY_FAILOVER, /* a connection that was to take over */
    PVN_RETRY_LOSSES,   /* a comm whose lanes are lost again and again, before it connects */
    PVN_RETRY_RETURN,   /* a connection with better lanes, beside the one in use */
    PVN_RETRY_HOME,     /* the first path, after lanes there that delivered nothing */
    PVN_RETRY_CONTROL,  /* another control connection */
    PVN_RETRY_PROBE,    /* a look for the peer's process */
    PVN_RETRY_RESOLVE,  /* a queue pair whose peer's address did not answer on the link */
    PVN_RETRIES
};

/* ns: the pause before an attempt, after so many failures of such attempts in a row. */
uint64_t pvn_retry_pause_ns(enum pvn_retry kind, unsigned failures);
/* ns: the pause after one of `pause` ns; 0: the first one. */
uint64_t pvn_retry_next_ns(enum pvn_retry kind, uint64_t pause);
/* ns: the longest pause of this kind. */
uint64_t pvn_retry_longest_ns(enum pvn_retry kind);
/* True if an attempt that failed with this negative errno may succeed later: the path is interrupted, or this machine is
 * short of ports, descriptors or memory. */
bool pvn_retry_may_help(int code);
/* ns: an attempt that nothing answers is given up after this long; 0: a limit of the whole counts. */
uint64_t pvn_retry_answer_ns(enum pvn_retry kind);

#endif
