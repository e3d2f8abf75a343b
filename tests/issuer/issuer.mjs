// An OpenID Connect issuer for tests: oidc-provider (certified by the OpenID Foundation) with its own pages for signing in, one client, and
// users whose name says their group: `ann.shop` is in the group `shop`. Prints its address when it listens.
//   node issuer.mjs SECRET CALLBACK
import http from "node:http";
import Provider from "oidc-provider";

const [secret, callback] = process.argv.slice(2);
// Who started it reads one line; the provider says more later.
process.stdout.on("error", () => {});
const server = http.createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "drover", client_secret: secret, redirect_uris: [callback], token_endpoint_auth_method: "client_secret_post" }],
    claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"], profile: ["name"] },
    scopes: ["openid", "email", "profile", "groups"],
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, name: id, email: `${id}@example.com`, email_verified: !id.includes("unverified"), groups: [id.split(".")[1] ?? "none"] }),
    }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
