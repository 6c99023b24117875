/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PVN_STD_FDS_H
#define PVN_STD_FDS_H

/* Opens standard streams that the caller of the program has closed. Otherwise the next file or
 * socket would get their number and receive the output. Call it first in main. Such a stream is at
 * its end and accepts no data. */
void pvn_std_fds(void);

#endif
