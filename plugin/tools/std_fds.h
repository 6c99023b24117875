/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PVN_STD_FDS_H
#define PVN_STD_FDS_H

/* Opens standard streams that the caller has closed: else the next file or socket would get their
 * number, and with it what is printed. First thing in main. Such a stream is at its end, and takes nothing. */
void pvn_std_fds(void);

#endif
