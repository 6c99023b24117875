/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A transport whose lanes carry no data, for tests of connection set-up. A lane comes up or
 * fails as the test requests. */
#ifndef PVN_TESTS_SUPPORT_MEMLANE_H
#define PVN_TESTS_SUPPORT_MEMLANE_H

#include "connect/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PVN_MEMLANES = 4 };

/* A plan for each end (0 acceptor, 1 sender) and each lane of a device. A value is what the
 * operation returns: 0, -EAGAIN each time, or an error. caps: the lane's capabilities. */
struct pvn_memlane_plan {
    int lane_new, bind, verify;
    int fence_again; /* so many calls of fence first return -EAGAIN */
    int fence;       /* the next call's result */
    int fences;      /* calls that were made */
    unsigned caps;
    int verify_blocks_ms; /* milliseconds for which the next call of verify blocks, once */
};
extern struct pvn_memlane_plan pvn_memlane_plan[2][PVN_MEMLANES];
extern int pvn_memlane_open; /* lanes that exist */

void pvn_memlane_reset(void);
/* Two transports, so that a device can have lanes of different kinds. The lanes of this one are
 * called "mem". */
extern const struct pvn_transport_ops pvn_mem_transport;
extern const struct pvn_transport_ops pvn_mem2_transport; /* "mem2" */
/* Gives a device its name and a loopback address. */
void pvn_memlane_device(struct pvn_device *dev, const char *name);

#ifdef __cplusplus
}
#endif

#endif
