import { BinaryReader } from "@bufbuild/protobuf/wire";
import { ConnectError } from "@connectrpc/connect";

const reasonField = 1;

/** Returns the reason in the google.rpc.ErrorInfo of a failed call, such as INVALID_TENANT, or "" where it has none. */
export function errorReason(error: unknown): string {
  for (const detail of ConnectError.from(error).details) {
    if ("type" in detail && detail.type === "google.rpc.ErrorInfo") {
      return readReason(detail.value);
    }
  }
  return "";
}

function readReason(errorInfo: Uint8Array): string {
  const reader = new BinaryReader(errorInfo);
  let reason = "";
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === reasonField) {
      reason = reader.string();
    } else {
      reader.skip(wireType, field);
    }
  }
  return reason;
}
