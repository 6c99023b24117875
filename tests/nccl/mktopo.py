# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Prints an NCCL topology of T GPUs with NVLink, a switch for each, and NICs beside the last: mktopo.py T NETNAME,..
# [BUSID of the first]
import sys
T=int(sys.argv[1]); nets=sys.argv[2].split(","); dev=sys.argv[3] if len(sys.argv)>3 else "0000:3b:00.0"
S='vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="0xa064" link_speed="16.0 GT/s PCIe" link_width="16"'
G='class="0x030200" vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" subsystem_device="0x16c1" link_speed="16.0 GT/s PCIe" link_width="16"'
print('<system version="1">\n<cpu host_hash="0x0" numaid="0" affinity="00000003" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">')
for g in range(T):
    print('<pci busid="0000:%02x:00.0" class="0x060400" %s>'%(0x40+g,S))
    print('<pci busid="0000:%02x:00.0" %s><gpu dev="%d" sm="90" rank="%d" gdr="1">'%(0x1b+g,G,g,g))
    for o in range(T):
        if o!=g: print('<nvlink target="0000:%02x:00.0" count="%d" tclass="0x030200"/>'%(0x1b+o, 12//max(1,T-1)))
    print('</gpu></pci>')
    for n,net in enumerate(nets if g==T-1 else []):
        bus=dev if not n else "0000:%02x:00.0"%(0x3b+n)
        print('<pci busid="%s" class="0x020000" vendor="0x15b3" device="0x1021" subsystem_vendor="0x15b3" subsystem_device="0x0021" link_speed="16.0 GT/s PCIe" link_width="16"><nic><net name="%s" dev="%d" speed="10000" port="1" latency="0.000000" guid="0x%x" maxconn="65536" gdr="1"/></nic></pci>'%(bus,net,n,n+1))
    print('</pci>')
print('</cpu>\n</system>')
