// SPDX-License-Identifier: Apache-2.0
// One end of the medium: a TAP device in a network namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

namespace medium
{

class Tap
{
  public:
    /// Creates NAME in the namespace of "NETNS/NAME" ("NAME" alone: in ours),
    /// with this MAC, and sets it up. It vanishes with the process.
    /// Throws std::runtime_error.
    Tap(const std::string& where, const uint8_t mac[6]);
    Tap(const Tap&) = delete;

    /// One Ethernet frame; 0 when there is none, or on error.
    size_t Read(uint8_t* buffer, size_t size);
    void Write(const uint8_t* frame, size_t size);

    int Fd() const
    {
        return m_fd;
    }

  private:
    int m_fd;
};

} // namespace medium
