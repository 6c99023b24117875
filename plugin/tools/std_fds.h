/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PVN_STD_FDS_H
#define PVN_STD_FDS_H

/* Where the caller has closed a standard stream, the next file or socket would get its number, and
 * with it what is printed. First thing in main: such a stream is at its end, and takes nothing. */
void pvn_std_fds(void);

#endif
