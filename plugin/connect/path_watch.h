/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches if the machine at the other end of a TCP connection still answers.
 *
 * TCP_USER_TIMEOUT does not say that: Linux counts it while the peer's window is closed, too,
 * though the peer's kernel answers each window probe. A process that is late, stopped or in a
 * debugger would lose its connections. So the kernel gets that option for dialling only. Afterwards
 * TCP_INFO is read now and then while somebody waits: a path is dead when a segment or a probe has
 * had no answer for that long. A closed window alone is a slow reader, for which there is no limit
 * here.
 *
 * Keepalive probes count as well, so an end that only receives is covered while it has keepalive.
 */
#ifndef PVN_CONNECT_PATH_WATCH_H
#define PVN_CONNECT_PATH_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* All zero at first, and again for each new socket. */
struct pvn_path_watch {
    /* When a look first found an answer missing; 0: none is missing. */
    uint64_t since_ns;
    uint64_t looked_ns;
    uint64_t skipped_ns; /* time since then that does not count */
};

/*
 * Returns for how many ns the peer's kernel has answered nothing; 0: no answer is missing. Reads
 * TCP_INFO at most twice a second, so it may be called often. A long time between two calls counts
 * only in part, because this end or its machine may have been stopped itself.
 */
uint64_t pvn_path_silent(struct pvn_path_watch *w, int fd, uint64_t now);

/*
 * Returns for how many ns a path may be silent before it is dead, by NCCL_PVRDMA_TCP_USER_TIMEOUT; 0: no limit.
 * failover: the comm outlives this path. Otherwise the job would end with it, so auto waits for a machine that stands
 * still for up to 3 minutes, as a comm with failover does (60 s and FAILOVER_TIMEOUT's 120 s). It waits for 240 s, because
 * Linux sends unacknowledged data again 102 s and 205 s after it was sent, and not in between (RTO_MIN doubled each time).
 */
uint64_t pvn_path_limit(bool failover);

/* True if the peer's kernel has acknowledged all that was sent until now, and neither end has
 * closed. False if that is not known. */
bool pvn_path_answers(int fd);
/* True if neither end has closed, and the kernel has not had to repeat what it last sent. So the peer's kernel has
 * acknowledged all but what was sent in the last RTO_MIN (200 ms). */
bool pvn_path_repeats_nothing(int fd);

#endif
