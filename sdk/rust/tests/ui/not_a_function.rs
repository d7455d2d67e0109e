#[tidemill::function(input = "flights")]
struct Late;

fn main() {}
