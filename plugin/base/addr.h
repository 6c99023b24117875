/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Socket addresses, IPv4 and IPv6 with scope: comparing, printing, reading. No name server is used.
 * Any thread. */
#ifndef PVN_BASE_ADDR_H
#define PVN_BASE_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

/* "[" + 45 of an IPv6 address + "%" + interface name + "]:65535" and the end. */
#define PVN_ADDR_TEXT_LEN 80

/* Bytes of a sockaddr of this family; 0 for one that is neither IPv4 nor IPv6. */
socklen_t pvn_addr_len(const struct sockaddr *sa);

/* Host byte order; 0 and no effect for other families. */
uint16_t pvn_addr_port(const struct sockaddr *sa);
void pvn_addr_set_port(struct sockaddr *sa, uint16_t port);

/* "192.0.2.1:4000", "[2001:db8::1]:4000", "[fe80::1%eth0]:4000"; without the port when it is 0.
 * Returns buf. An unknown family prints as "family N". */
const char *pvn_addr_format(const struct sockaddr *sa, char *buf, size_t size);

/* The address alone, without brackets and port: "fe80::1%eth0". */
const char *pvn_addr_format_host(const struct sockaddr *sa, char *buf, size_t size);

/* Reads what pvn_addr_format prints. The scope may be a name or a number; a name that no interface
 * has is an error. 0 or -EINVAL / -ENODEV with *err. */
int pvn_addr_parse(const char *text, struct sockaddr_storage *out, struct pvn_err *err);

/* Same family, address and scope, whatever the ports. An IPv4-mapped IPv6 address (::ffff:a.b.c.d)
 * equals the IPv4 one. */
bool pvn_addr_same_host(const struct sockaddr *a, const struct sockaddr *b);

bool pvn_addr_is_any(const struct sockaddr *sa);
bool pvn_addr_is_loopback(const struct sockaddr *sa);
bool pvn_addr_is_link_local(const struct sockaddr *sa);

/* True if both lie in the network of `prefixlen` bits. Scopes are compared for link-local ones. */
bool pvn_addr_same_net(const struct sockaddr *a, const struct sockaddr *b, unsigned prefixlen);

#endif
