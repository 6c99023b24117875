/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches if the machine at the other end of a TCP connection still answers.
 *
 * TCP_USER_TIMEOUT does not say that: Linux counts it while the peer's window is closed, too, though the peer's
 * kernel answers each probe of the window. A process that is late, stopped or in a debugger would lose its
 * connections. So the kernel gets that option for dialling only, and TCP_INFO is looked at now and then
 * while somebody waits: a path is dead when something that was sent, or a probe, has had no answer for
 * so long. A closed window by itself is a slow reader, for which there is no limit here.
 *
 * Keepalive probes count as well, so an end that only receives is covered while it has keepalive.
 */
#ifndef PVN_CONNECT_PATH_WATCH_H
#define PVN_CONNECT_PATH_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* All zero at first, and with each new socket. */
struct pvn_path_watch {
    uint64_t
        since_ns; /* of the look that was the first to see it without an answer; 0: there is none */
    uint64_t looked_ns;
    uint64_t skipped_ns; /* since then, does not count */
};

/*
 * For how long the peer's kernel has answered nothing, 0: nothing is without an answer. Asks this end's kernel twice
 * a second at most, so it may be called often. Of the time in which nobody looks a little counts only: this end
 * may have been stopped itself, or its machine.
 */
uint64_t pvn_path_silent(struct pvn_path_watch *w, int fd, uint64_t now);

/* True if all that was sent has been acknowledged by the peer's kernel, as of now, and neither end has closed. False where
 * that is not known. */
bool pvn_path_answers(int fd);

#endif
