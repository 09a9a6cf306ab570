// Facts about this host and its processes. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace starling {

// Name of this host as members carry it: host name and a piece of the kernel's boot id. Processes
// with equal names run under one kernel, so they can share memory and ask about each other's pids.
const std::string& HostId();

// Whether no process of that number runs on this host any more: there is none, it is dead and
// unreaped, or it is on its way out (its descriptors may be closed before it is dead).
bool ProcessIsGone(int64_t pid);

}  // namespace starling
