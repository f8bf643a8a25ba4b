// Asks for nothing with @grpc/grpc-js and prints the status: grpc_js.js ADDRESS METHOD CA KEY CERTIFICATE TOKEN, "" for none.
const fs = require("fs");
const grpc = require("@grpc/grpc-js");

const [address, method, ca, key, certificate, token] = process.argv.slice(2);
const read = (path) => (path ? fs.readFileSync(path) : null);
const credentials = grpc.credentials.createSsl(read(ca), read(key), read(certificate));
const client = new grpc.Client(address, credentials);
const metadata = new grpc.Metadata();
if (token) metadata.set("authorization", `Bearer ${token}`);
const same = (bytes) => bytes;
const options = { deadline: Date.now() + 60000 };
client.makeUnaryRequest(method, same, same, Buffer.alloc(0), metadata, options, (error) => {
  console.log(error ? grpc.status[error.code] : "OK");
  client.close();
});
